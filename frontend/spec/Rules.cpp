// The key `precision.rules`: how parameters, what is saved for the backward part, and
// moments are stored.

#include "frontend/spec/Reader.h"
#include "kernels/StoredFormats.h"

#include <algorithm>

namespace sluice {

void Reader::readRules(const YAML::Node &node) {
  if (!node.IsSequence())
    return error(node, "'precision.rules' is no list, expected rules such as [{match: "
                       "\"*.norm*\", keep: fp32}]");
  for (const YAML::Node &rule : node)
    readRule(rule);
}

/// What a rule does; without any of these it is for nothing.
static bool hasEffect(const StorageRule &rule) {
  return rule.isKept || !rule.storage.empty() || !rule.saved.empty() ||
         !rule.moments.empty();
}

void Reader::readRule(const YAML::Node &node) {
  StorageRule rule;
  size_t errorsBefore = result.errors.size();
  std::string keep, scaling = "current";
  read(node, "match", rule.match, "a glob of parameters or nodes");
  read(node, "part", rule.part, "an element of names");
  read(node, "keep", keep, "text");
  read(node, "saved", rule.saved, "a format");
  read(node, "moments", rule.moments, "a format");
  read(node, "scaling", scaling, "text");
  if (rule.match.empty() == rule.part.empty())
    error(node, "a rule of 'precision.rules' has match: '" + rule.match +
                    "' and part: '" + rule.part +
                    "', expected one of them: a glob, or an element of names");
  if (node["keep"] && oneOf(node["keep"], keep, {"fp32"}, {}, "precision.rules[].keep"))
    rule.isKept = true;
  if (node["moments"])
    checkMoments(node["moments"], rule.moments, "precision.rules[].moments");
  if (node["scaling"] && oneOf(node["scaling"], scaling, {"current", "delayed"}, {},
                               "precision.rules[].scaling"))
    rule.isDelayed = scaling == "delayed";
  readStorage(node, rule);
  if (node["saved"])
    checkFormat(node["saved"], rule.saved, "precision.rules[].saved");
  if (result.errors.size() > errorsBefore)
    return;
  if (!hasEffect(rule))
    return error(node,
                 "a rule of 'precision.rules' has none of 'keep', 'storage', 'saved' "
                 "and 'moments', expected one: what the rule is for");
  if (rule.isKept && !rule.match.empty())
    spec.precision.keep.push_back(rule.match);
  spec.precision.rules.push_back(std::move(rule));
}

/// One format, or several by depth.
void Reader::readStorage(const YAML::Node &node, StorageRule &rule) {
  const YAML::Node storage = node["storage"];
  if (storage && storage.IsSequence())
    for (const YAML::Node &format : storage)
      rule.storage.push_back(text(format));
  else if (storage)
    rule.storage.push_back(text(storage));
  if (storage && rule.storage.empty())
    error(storage, "'precision.rules[].storage' is an empty list, expected a format");
  for (const std::string &format : rule.storage)
    checkFormat(storage, format, "precision.rules[].storage");
  if (storage && rule.isKept)
    error(storage, "a rule of 'precision.rules' has both 'keep' and 'storage': a "
                   "parameter is stored in one way; make two rules, of which the later "
                   "wins");
  if (node["master"]) {
    read(node, "master", rule.master, "text");
    oneOf(node["master"], rule.master, {"none", "fp32"}, {}, "precision.rules[].master");
    if (!storage)
      error(node["master"], "'precision.rules[].master' has no effect without 'storage'; "
                            "remove it, or see 'precision.master'");
  }
  bool isPerTensor = rule.saved == "e4m3" || rule.saved == "e5m2" || rule.saved == "fp8";
  for (const std::string &format : rule.storage)
    isPerTensor |= format == "e4m3" || format == "e5m2" || format == "fp8";
  if (rule.isDelayed && !isPerTensor)
    error(
        node["scaling"],
        "'precision.rules[].scaling' is delayed, which is for formats with one scale "
        "per tensor, e4m3 and e5m2: blocks take their own largest magnitude as they are "
        "stored");
}

void Reader::checkFormat(const YAML::Node &node, const std::string &name,
                         const std::string &key) {
  if (name.starts_with("mxfp8") && name.find("e5m2") != std::string::npos)
    return error(node,
                 "'" + key + "' is '" + name +
                     "': with a scale per block e5m2 gives a bit of mantissa away "
                     "for range that the scale has already; mxfp8 is e4m3 in both "
                     "directions. Expected mxfp8, or e5m2 with one scale per tensor");
  auto format = storedFormat(name);
  if (!format || *format == StoredFormat::fp32)
    error(node, "'" + key + "' is '" + name + "', expected one of " +
                    storedFormatNames() +
                    " (fp8 is e4m3) that is not fp32; 'keep: fp32' "
                    "is for those that stay");
}

/// Moments have two forms of their own beside the stored ones.
void Reader::checkMoments(const YAML::Node &node, const std::string &name,
                          const std::string &key) {
  if (name != "int8" && !storedFormat(name))
    error(node, "'" + key + "' is '" + name +
                    "', expected int8, fp8 (e4m3 with its range expanded) or one of " +
                    storedFormatNames());
}

/// Rules that keep are exceptions: from mixed precision, other rules or a policy.
void Reader::checkKeep(const YAML::Node &node) {
  const PrecisionSpec &precision = spec.precision;
  bool hasStorage = std::any_of(precision.rules.begin(), precision.rules.end(),
                                [](const StorageRule &r) { return !r.storage.empty(); });
  if (!precision.keep.empty() && !precision.isNarrow() && !hasStorage &&
      !precision.policy.isOn())
    error(node, "'keep' of 'precision.rules' has no effect under compute fp32 without "
                "formats to keep from; remove it");
}

} // namespace sluice
