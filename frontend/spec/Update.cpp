// Groups of parameters that are updated together, and when.

#include "frontend/spec/Reader.h"

#include <algorithm>

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
  if (node["mode"])
    readMode(node["mode"], update.mode);
  read(node, "safe_lr", update.safeLr, "true or false");
  if (node["compensation"])
    readCompensation(node["compensation"]);
  if (node["flush"])
    readFlush(node["flush"]);
  if (update.every() > 1 && !update.hasGroups())
    error(node["mode"], "'update.mode: interleave' staggers groups, and "
                        "'update.grouping' makes none; give that too");
  if (update.mode.kind == "overlap" && !update.hasGroups())
    error(node["mode"], "'update.mode: overlap' sends and updates groups, and "
                        "'update.grouping' makes none; give that too");
  for (const UpdateGroupRule &rule : update.rules)
    if (rule.mode && rule.mode->every > 1 && rule.mode->every != update.every())
      error(node["grouping"],
            "group '" + rule.name + "' is updated at every " +
                std::to_string(rule.mode->every) + " steps, another at every " +
                std::to_string(update.every()) + "; those that interleave share one K");
}

/// sync, overlap, {interleave: K} or {defer: D}.
void Reader::readMode(const YAML::Node &node, UpdateMode &mode) {
  bool isMap = node.IsMap() && node.size() == 1;
  std::string written = isMap ? text(node.begin()->first) : text(node);
  bool hasNumber = written == "interleave" || written == "defer";
  if (!oneOf(node, written, {"sync", "overlap", "interleave", "defer"}, {},
             "update.mode"))
    return;
  if (hasNumber != isMap)
    return error(node, "'update.mode' is '" + written + "'" +
                           (isMap ? " with a number, which it has not"
                                  : ", expected {" + written + ": N}"));
  mode = {};
  mode.kind = written;
  if (written == "interleave")
    count(node, "interleave", mode.every, 1);
  if (written == "defer")
    count(node, "defer", mode.delay, 0);
  constexpr int64_t mostSteps = 64; // each is a program, or a copy of the gradients
  if (std::max(mode.every, mode.delay) > mostSteps)
    error(node, "'update.mode." + written + "' is " +
                    std::to_string(std::max(mode.every, mode.delay)) +
                    ", expected at most " + std::to_string(mostSteps));
}

/// none, dc_asgd, momentum, or a map with such a kind.
void Reader::readCompensation(const YAML::Node &node) {
  CompensationSpec &how = spec.update.compensation;
  how.kind = node.IsMap() ? "dc_asgd" : text(node);
  if (node.IsMap())
    read(node, "kind", how.kind, "text");
  oneOf(node, how.kind, {"none", "dc_asgd", "momentum"}, {}, "update.compensation");
  if (!node.IsMap())
    return;
  number(node, "lambda", how.lambda, 0, 1e6);
  read(node, "adaptive", how.adaptive, "true or false");
  number(node, "decay", how.decay, 0, 1);
  read(node, "versions", how.versions, "text");
  oneOf(node, how.versions, {"stored", "reconstructed"}, {},
        "update.compensation.versions");
  for (const char *key : {"lambda", "adaptive", "decay", "versions"})
    if (node[key] && how.kind != "dc_asgd")
      error(node[key], "'update.compensation." + std::string(key) +
                           "' is of 'kind: dc_asgd', not of '" + how.kind +
                           "'; remove it");
}

/// Before what pending gradients are applied: a list of eval, save and stop.
void Reader::readFlush(const YAML::Node &node) {
  UpdateSpec &update = spec.update;
  update.flushesBeforeEval = update.flushesBeforeSave = update.flushesAtEnd = false;
  if (!node.IsSequence())
    return error(node, "'update.flush' is '" + text(node) +
                           "', expected a list of eval, save and stop");
  for (const YAML::Node &entry : node) {
    oneOf(entry, text(entry), {"eval", "save", "stop"}, {}, "update.flush");
    update.flushesBeforeEval |= text(entry) == "eval";
    update.flushesBeforeSave |= text(entry) == "save";
    update.flushesAtEnd |= text(entry) == "stop";
  }
}

/// Norms, reports and modes are told apart by these names.
void Reader::checkGroupName(const YAML::Node &entry, const std::string &name) {
  bool isPrintable = std::ranges::all_of(
      name, [](unsigned char letter) { return letter >= ' ' && letter != 127; });
  if (name.empty() || !isPrintable)
    error(entry, "the name of an update group is '" + name +
                     "', expected a line of text that is not empty");
  for (const UpdateGroupRule &other : spec.update.rules)
    if (other.name == name)
      error(entry, "two groups of 'update.grouping' have the name '" + name +
                       "', expected one name for each; the other matches '" +
                       other.match + "'");
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
  if (node.size() == 0)
    error(node, "'update.grouping' is an empty list; leave it out");
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
    checkGroupName(entry, rule.name);
    if (entry["mode"])
      readMode(entry["mode"], rule.mode.emplace());
    update.rules.push_back(std::move(rule));
  }
}

} // namespace sluice
