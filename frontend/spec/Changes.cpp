#include "frontend/spec/Reader.h"

#include <algorithm>

namespace sluice {

/// The keys of an optimizer that the runtime can change, under their names there.
static std::vector<std::pair<std::string, double>> valuesOf(const YAML::Node &entry,
                                                            const OptimizerSpec &o) {
  const std::pair<const char *, double> numbers[] = {
      {"lr", o.lr},
      {"eps", o.eps},
      {"weight_decay", o.weightDecay},
      {"momentum", o.momentum},
      {"dampening", o.dampening},
      {"momentum_decay", o.momentumDecay},
      {"lr_decay", o.lrDecay},
      {"alpha", o.alpha},
      {"beta2_decay", o.beta2Decay},
      {"eps2", o.eps2},
      {"d", o.d},
  };
  std::vector<std::pair<std::string, double>> values;
  for (const auto &[key, value] : numbers)
    if (entry[key])
      values.emplace_back(key, value);
  if (entry["betas"]) {
    values.emplace_back("beta1", o.beta1);
    values.emplace_back("beta2", o.beta2);
  }
  return values;
}

void Reader::readChanges(const YAML::Node &node) {
  for (const YAML::Node &entry : node) {
    if (!entry.IsMap())
      continue;
    ChangeSpec change;
    count(entry, "at", change.at, 0);
    if (!entry["at"])
      error(entry, "an element of 'changes' has no 'at', the updates done before it");
    read(entry, "group", change.group, "the name of a group");
    OptimizerSpec values;
    readOptimizerKeys(entry, "changes[]", values);
    change.values = valuesOf(entry, values);
    bool isFrozen = false;
    read(entry, "frozen", isFrozen, "true or false");
    if (entry["frozen"])
      change.values.emplace_back("frozen", isFrozen);
    double clipMax = 0;
    number(entry, "clip_max", clipMax, 0, 1e30);
    if (entry["clip_max"]) {
      if (!change.group.empty())
        error(entry["clip_max"], "'clip_max' belongs to no group; give it an element of "
                                 "its own");
      change.values.emplace_back("clip_max", clipMax);
    }
    for (const auto &[name, value] : change.values)
      if ((name == "alpha" || name == "momentum") && value >= 1)
        error(entry, "'changes[]." + name + "' is 1, expected a number below 1");
    if (change.values.empty())
      error(entry, "an element of 'changes' changes nothing");
    if (!spec.changes.empty() && change.at < spec.changes.back().at)
      error(entry, "'at' is " + std::to_string(change.at) + " behind " +
                       std::to_string(spec.changes.back().at) +
                       "; the elements of 'changes' stand in order");
    spec.changes.push_back(change);
  }
}

} // namespace sluice
