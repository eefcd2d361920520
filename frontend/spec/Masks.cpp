// The key `continual.masks`: weights of single tasks inside one model.

#include "frontend/spec/Reader.h"

#include <set>

namespace sluice {

void Reader::readMasks(const YAML::Node &node) {
  MaskSpec &masks = spec.masks;
  if (!node.IsMap() || !node["kind"])
    return error(node, "'continual.masks' has no 'kind', expected packnet or supermask");
  masks.kind = text(node["kind"]);
  if (!oneOf(node["kind"], masks.kind, {"packnet", "supermask"}, {},
             "continual.masks.kind"))
    masks.kind = "packnet";
  if (!node["tasks"])
    error(node, "'continual.masks' has no 'tasks': the names of all tasks to be learned, "
                "which there must be room for, such as [a, b]");
  read(node, "tasks", masks.tasks, "a list of names");
  std::set<std::string> seen;
  for (const std::string &task : masks.tasks) {
    if (task.empty() || task.find('/') != std::string::npos)
      error(node["tasks"],
            "'continual.masks.tasks' has '" + task + "', expected names without '/'");
    if (!seen.insert(task).second)
      error(node["tasks"], "'continual.masks.tasks' names '" + task + "' twice");
  }
  if (node["tasks"] && (masks.tasks.empty() || masks.tasks.size() > 62))
    error(node["tasks"], "'continual.masks.tasks' has " +
                             std::to_string(masks.tasks.size()) +
                             " names, expected 1 to 62");
  number(node, "share", masks.share, 0, 1);
  number(node, "retrain", masks.retrain, 0, 1);
  for (const char *key : {"share", "retrain"})
    if (node[key] && masks.kind == "supermask")
      error(node[key], "'continual.masks." + std::string(key) +
                           "' is for packnet: of a supermask the scores decide");
}

/// What masks meet in other sections: refused rather than half done.
void Reader::checkMasks(const YAML::Node &root) {
  if (!spec.masks.isOn())
    return;
  auto clash = [&](const char *section, bool clashes, const std::string &with) {
    if (clashes)
      error(root[section] ? root[section] : root["continual"],
            "'continual.masks' is not yet supported with '" + with +
                "'; remove one of them");
  };
  clash("continual", spec.penalty.isOn(), "continual." + spec.penalty.kind);
  clash("parallel", spec.ranks > 1, "parallel.data");
  clash("parallel", spec.zero > 0, "parallel.zero");
  const PrecisionSpec &precision = spec.precision;
  clash("precision", precision.isNarrow(), "precision.compute: " + precision.compute);
  clash("precision", precision.optimizerState != "fp32",
        "precision.optimizer_state: " + precision.optimizerState);
  clash("precision", !precision.rules.empty() || precision.policy.isOn(),
        "precision.rules or precision.policy");
  clash("update", spec.update.isStaggered(), "update.mode: interleave or defer");
  clash("tie", !spec.tie.empty(), "tie");
  clash("lora", !spec.lora.empty(), "lora");
  bool isScored = spec.masks.kind == "supermask";
  clash("update", isScored && spec.update.hasGroups(), "update.grouping");
  clash("clip", isScored && spec.clip.kind == "agc", "clip: {kind: agc}");
  for (const std::string &entry : spec.entries)
    clash("entries", entry == "probe", "entries: [probe]");
  std::vector<std::string> kinds = {spec.optimizer.kind};
  for (const ParameterGroupSpec &group : spec.parameterGroups)
    if (group.kind)
      kinds.push_back(*group.kind);
  for (const std::string &kind : kinds)
    clash("optimizer", spec.masks.kind == "packnet" && kind == "adafactor",
          "optimizer: {kind: adafactor}");
}

} // namespace sluice
