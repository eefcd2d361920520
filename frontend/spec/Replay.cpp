// The key `continual.replay`: samples of tasks before in every micro-batch.

#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readReplay(const YAML::Node &node) {
  ReplaySpec &replay = spec.replay;
  replay.isOn = true;
  number(node, "ratio", replay.ratio, 0, 1);
  if (node["ratio"] && (replay.ratio <= 0 || replay.ratio >= 1))
    error(node["ratio"], "'continual.replay.ratio' is the share of a micro-batch that is "
                         "replayed, expected more than 0 and less than 1");
  if (YAML::Node capacity = node["capacity"]) {
    auto bytes = capacity.IsScalar() ? parseSize(capacity.Scalar()) : std::nullopt;
    if (!bytes || *bytes < 1)
      error(capacity, "'continual.replay.capacity' is '" + text(capacity) +
                          "', expected bytes or a size such as 64MiB");
    replay.capacityBytes = bytes.value_or(1);
  }
  read(node, "policy", replay.policy, "text");
  oneOf(node["policy"] ? node["policy"] : node, replay.policy,
        {"ring", "reservoir", "balanced", "prioritized"}, {}, "continual.replay.policy");
  number(node, "alpha", replay.alpha, 0, 100);
  number(node, "importance", replay.importance, 0, 1);
  count(node, "min_per_class", replay.minPerClass, 0);
  for (const char *key : {"alpha", "importance"})
    if (node[key] && replay.policy != "prioritized")
      error(node[key],
            "'continual.replay." + std::string(key) +
                "' has a meaning for the policy 'prioritized' alone, which is '" +
                replay.policy + "'");
  if (YAML::Node derpp = node["derpp"]) {
    double alpha = 0.3, beta = 0.5;
    number(derpp, "alpha", alpha, 0, 1e6);
    number(derpp, "beta", beta, 0, 1e6);
    replay.logitsWeight = alpha;
    replay.labelsWeight = beta;
  }
}

/// What it meets in other sections.
void Reader::checkReplay(const YAML::Node &root) {
  const ReplaySpec &replay = spec.replay;
  if (!replay.isOn)
    return;
  auto at = root["continual"];
  if (spec.ranks > 1)
    error(at, "'continual.replay' is not yet supported with 'parallel.data': each rank "
              "would have a buffer of its own; train with one rank");
  if (spec.buckets.size() > 1)
    error(at, "'continual.replay' is not yet supported with several 'shapes': a buffer "
              "keeps samples of one shape");
  if (spec.penalty.refresh > 0)
    error(at, "'continual.replay' is not yet supported with 'continual.ewc.refresh', "
              "whose Fisher is that of new data alone; consolidate at the ends of tasks");
  if (!replay.isWeighted())
    return;
  std::string who = replay.hasLogits() ? "'continual.replay.derpp'"
                                       : "'continual.replay.policy: prioritized'";
  bool known = false;
  for (const char *kind :
       {"cross_entropy", "nll", "mse", "l1", "huber", "bce_with_logits"})
    known |= spec.loss.kind == kind;
  if (!known)
    error(at, who + " weighs the loss of single samples, which '" + spec.loss.kind +
                  "' has none of; expected cross_entropy, nll, mse, l1, huber or "
                  "bce_with_logits");
  if (spec.loss.labelSmoothing > 0)
    error(at, who + " is not yet supported with 'loss.label_smoothing'; remove one of "
                    "them");
}

} // namespace sluice
