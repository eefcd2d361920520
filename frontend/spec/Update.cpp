// Groups of parameters that are updated together, and when.

#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readUpdate(const YAML::Node &node) {
  UpdateSpec &update = spec.update;
  count(node, "group_size", update.groupSize, 1);
  if (YAML::Node grouping = node["grouping"])
    readGrouping(grouping);
  else if (node["group_size"])
    error(node["group_size"], "'update.group_size' is of 'update.grouping: topology'; "
                              "give that too");
  if (update.groups > 0 && node["group_size"])
    error(node["group_size"], "'update.group_size' and 'update.grouping.count' both say "
                              "how large groups are; give one");
  if (!update.rules.empty() && node["group_size"])
    error(node["group_size"], "'update.group_size' is of 'update.grouping: topology', "
                              "not of groups by name; remove it");
  YAML::Node mode = node["mode"];
  if (!mode)
    return;
  std::string written =
      mode.IsMap() && mode.size() == 1 ? text(mode.begin()->first) : text(mode);
  if (oneOf(mode, written, {"sync"}, {"overlap", "interleave", "defer"}, "update.mode"))
    update.mode = written;
}

/// topology, {count: N}, or a list of {name, match}.
void Reader::readGrouping(const YAML::Node &node) {
  UpdateSpec &update = spec.update;
  if (node.IsMap()) {
    update.byTopology = true;
    count(node, "count", update.groups, 1);
    if (!node["count"])
      error(node, "'update.grouping' is a map without 'count'");
    return;
  }
  if (!node.IsSequence()) {
    update.byTopology = oneOf(node, text(node), {"topology"}, {}, "update.grouping");
    return;
  }
  for (const YAML::Node &entry : node) {
    UpdateGroupRule rule;
    if (!entry.IsMap() || !entry["match"]) {
      error(entry, "an element of 'update.grouping' is " + text(entry) +
                       ", expected {name: NAME, match: GLOB}");
      continue;
    }
    read(entry, "match", rule.match, "a glob of parameters");
    rule.name = rule.match;
    read(entry, "name", rule.name, "a name");
    update.rules.push_back(std::move(rule));
  }
}

} // namespace sluice
