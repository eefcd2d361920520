#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readRecompute(const YAML::Node &node) {
  if (node.IsMap() && node["every"]) {
    spec.recompute = "every";
    count(node, "every", spec.recomputeEvery, 1);
  } else if (node.IsMap()) {
    error(node, "'memory.recompute' is a map without 'every'; expected none, sqrt, auto, "
                "regions or {every: N}");
  } else if (oneOf(node, text(node), {"none", "sqrt", "auto", "regions"}, {},
                   "memory.recompute")) {
    spec.recompute = text(node);
  }
}

/// Shares of the budget. One of 1 alone is no ladder.
void Reader::readLadder(const YAML::Node &memory) {
  if (!memory["ladder"])
    return;
  read(memory, "ladder", spec.ladder, "a list of shares such as [1.0, 0.8]");
  double before = 2;
  for (double share : spec.ladder) {
    if (!(share > 0) || share > 1 || share >= before)
      error(memory["ladder"], "'memory.ladder' has " + std::to_string(share) +
                                  ", expected falling shares of at most 1, such as "
                                  "[1.0, 0.8, 0.64]");
    before = share;
  }
  if (spec.ladder.size() == 1 && spec.ladder.front() == 1)
    spec.ladder.clear();
}

/// A list of regions, each a pattern or a list of patterns.
void Reader::readRegions(const YAML::Node &memory) {
  for (const YAML::Node &region : memory["regions"]) {
    auto &patterns = spec.recomputeRegions.emplace_back();
    if (region.IsScalar())
      patterns.push_back(region.Scalar());
    for (const YAML::Node &pattern : region)
      if (region.IsSequence() && pattern.IsScalar())
        patterns.push_back(pattern.Scalar());
    bool isList = region.IsSequence() && patterns.size() == region.size();
    if (patterns.empty() || (!region.IsScalar() && !isList))
      error(region, "an entry of 'memory.regions' is " + text(region) +
                        ", expected a pattern of node names or a list of them");
  }
  bool given = !spec.recomputeRegions.empty();
  if (given && spec.recompute.empty())
    spec.recompute = "regions";
  if (given && spec.recompute != "regions")
    error(memory["regions"], "'memory.regions' is a policy of its own beside "
                             "'memory.recompute: " +
                                 spec.recompute + "'; leave one of them out");
  if (!given && spec.recompute == "regions")
    error(memory["recompute"],
          "'memory.recompute: regions' needs 'memory.regions', such as [blocks.0]");
}

void Reader::readMemory(const YAML::Node &node) {
  if (YAML::Node budget = node["budget"]) {
    spec.budgetBytes = budget.IsScalar() ? parseSize(budget.Scalar()) : std::nullopt;
    if (!spec.budgetBytes)
      error(budget, "'memory.budget' is '" + text(budget) +
                        "', expected bytes or a size such as 2GiB");
  }
  if (YAML::Node recompute = node["recompute"])
    readRecompute(recompute);
  readRegions(node);
  readLadder(node);
  read(node, "keep", spec.keep, "a list of names");
  if (YAML::Node offload = node["offload"])
    if (oneOf(offload, text(offload), {"none", "auto", "host"}, {}, "memory.offload"))
      spec.offload = text(offload);
  if (YAML::Node threshold = node["offload_threshold"]) {
    read(node, "offload_threshold", spec.offloadThreshold, "a share of the budget");
    if (!(spec.offloadThreshold > 0 && spec.offloadThreshold <= 1))
      error(threshold, "'memory.offload_threshold' is " + text(threshold) +
                           ", expected a share of the budget above 0 and up to 1");
  }
  if (YAML::Node order = node["order"])
    oneOf(order, text(order), {"auto"}, {}, "memory.order");
}

} // namespace sluice
