// Bounds on gradients, and what is done about those and losses that jump.

#include "frontend/spec/Reader.h"

#include <algorithm>

namespace sluice {

void Reader::readClip(const YAML::Node &node) {
  ClipSpec &clip = spec.clip;
  read(node, "kind", clip.kind, "text");
  oneOf(node["kind"] ? node["kind"] : node, clip.kind,
        {"none", "global_norm", "group_norm", "agc", "zclip"}, {}, "clip.kind");
  if (node.IsMap() && !node["kind"])
    error(node, "'clip' is a map without 'kind', expected global_norm, group_norm, agc, "
                "zclip or none");
  number(node, "max", clip.max, 0, 1e30);
  bool needsMax = clip.kind == "global_norm" || clip.kind == "group_norm";
  if (needsMax && clip.max <= 0)
    error(node, "'clip: {kind: " + clip.kind + "}' needs 'max' above 0");
  std::string share = "elements";
  read(node, "share", share, "text");
  oneOf(node["share"] ? node["share"] : node, share, {"elements", "none"}, {},
        "clip.share");
  clip.isShared = share == "elements";
  number(node, "ratio", clip.ratio, 1e-12, 1e12);
  number(node, "eps", clip.eps, 0, 1e12);
  read(node, "exclude", clip.exclude, "a list of globs");
  number(node, "z", clip.z, 1e-3, 1e6);
  number(node, "alpha", clip.alpha, 0, 0.999999);
  count(node, "warmup", clip.warmup, 1);
  checkClipKeys(node);
}

/// A key without effect is an error.
void Reader::checkClipKeys(const YAML::Node &node) {
  static const struct {
    const char *key;
    std::vector<std::string> kinds;
  } keys[] = {{"max", {"global_norm", "group_norm", "zclip"}},
              {"share", {"group_norm"}},
              {"ratio", {"agc"}},
              {"eps", {"agc"}},
              {"exclude", {"agc"}},
              {"z", {"zclip"}},
              {"alpha", {"zclip"}},
              {"warmup", {"zclip"}}};
  const std::string &kind = spec.clip.kind;
  for (const auto &[key, kinds] : keys)
    if (node["kind"] && node[key] &&
        std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      error(node[key],
            "'clip." + std::string(key) + "' has no effect on " + kind + "; remove it");
}

void Reader::readSpikes(const YAML::Node &node) {
  SpikeSpec &spikes = spec.spikes;
  number(node, "fluctuation", spikes.fluctuation, 0, 1e6);
  spikes.cutsRates = spikes.fluctuation > 0;
  count(node, "window", spikes.window, 2);
  spikes.cooldown = 4 * std::min<int64_t>(spikes.window, int64_t(1) << 40);
  number(node, "scale", spikes.scale, 1e-6, 1);
  count(node, "max_times", spikes.maxTimes, 1);
  count(node, "cooldown", spikes.cooldown, 0);
  if (YAML::Node outliers = node["outliers"])
    readOutliers(outliers);
}

/// skip, or {action: skip, factor: 10}.
void Reader::readOutliers(const YAML::Node &node) {
  SpikeSpec &spikes = spec.spikes;
  if (node.IsMap() && !node["action"])
    return error(node, "'spikes.outliers' is a map without 'action'");
  YAML::Node action = node.IsMap() ? node["action"] : node;
  if (oneOf(action, text(action), {"keep", "skip", "rerun"}, {}, "spikes.outliers"))
    spikes.outliers = text(action);
  if (!node.IsMap())
    return;
  number(node, "factor", spikes.factor, 1, 1e12);
  number(node, "alpha", spikes.alpha, 0, 0.999999);
  count(node, "warmup", spikes.warmup, 1);
}

/// What sections ask for that cannot be had together.
void Reader::checkHealth(const YAML::Node &root) {
  if (spec.clip.kind == "agc" && spec.zero > 0 && spec.ranks > 1)
    error(root["clip"], "'clip: {kind: agc}' needs the gradients of whole units, which "
                        "no rank has under 'parallel.zero: " +
                            std::to_string(spec.zero) + "'; remove one of them");
}

} // namespace sluice
