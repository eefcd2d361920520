#include "frontend/spec/Reader.h"

#include <cmath>
#include <sstream>

namespace sluice {

void Reader::readBucket(const YAML::Node &node, ShapeBucket &bucket) {
  for (const auto &entry : node) {
    std::string name = entry.first.as<std::string>();
    try {
      if (entry.second.IsSequence()) {
        auto shape = entry.second.as<std::vector<int64_t>>();
        for (int64_t size : shape)
          if (size < 0)
            error(entry.second, "shape of '" + name + "' has a negative dimension");
        bucket.shapes[name] = shape;
      } else {
        int64_t size = entry.second.as<int64_t>();
        if (size < 0)
          error(entry.second, "dimension '" + name + "' is negative");
        bucket.dimensions[name] = size;
      }
    } catch (const YAML::Exception &) {
      error(entry.second, "'shapes." + name + "' is '" + text(entry.second) +
                              "', expected a list of sizes (an input) or one size (a "
                              "symbolic dimension)");
    }
  }
}

namespace {

/// What a bucket gives, by name, as text: "64", "4x64".
std::map<std::string, std::string> givenBy(const ShapeBucket &bucket) {
  std::map<std::string, std::string> given;
  for (const auto &[name, size] : bucket.dimensions)
    given[name] = std::to_string(size);
  for (const auto &[name, shape] : bucket.shapes) {
    std::string &value = given[name];
    for (int64_t size : shape)
      value += (value.empty() ? "" : "x") + std::to_string(size);
  }
  return given;
}

} // namespace

/// A bucket is called by what sets it apart from the others.
void Reader::nameBuckets(const YAML::Node &node) {
  std::vector<std::map<std::string, std::string>> given;
  for (const ShapeBucket &bucket : spec.buckets)
    given.push_back(givenBy(bucket));
  for (size_t i = 0; i < given.size(); ++i) {
    for (const auto &[name, value] : given[i]) {
      bool isShared = true;
      for (const auto &other : given) {
        auto found = other.find(name);
        isShared &= found != other.end() && found->second == value;
      }
      std::string &text = spec.buckets[i].name;
      if (!isShared)
        text += (text.empty() ? "" : ",") + name + "=" + value;
    }
    for (size_t j = 0; j < i; ++j)
      if (given[j] == given[i])
        return error(node[i], "elements " + std::to_string(j + 1) + " and " +
                                  std::to_string(i + 1) +
                                  " of 'shapes' give the same shapes; remove one");
    if (given[i].size() != given[0].size())
      return error(node[i], "element " + std::to_string(i + 1) +
                                " of 'shapes' gives other names than the first; give "
                                "the same in each");
  }
}

void Reader::readShapes(const YAML::Node &node) {
  if (node.IsSequence() && node.size() == 0)
    error(node, "'shapes' is an empty list, expected a map of shapes or several");
  for (const YAML::Node &element : node.IsSequence() ? node : YAML::Node()) {
    if (element.IsMap())
      readBucket(element, spec.buckets.emplace_back());
    else
      error(element, "an element of 'shapes' is " + text(element) + ", expected a map");
  }
  if (node.IsMap())
    readBucket(node, spec.buckets.emplace_back());
  if (spec.buckets.empty())
    return;
  spec.shapes = spec.buckets.front().shapes;
  spec.dimensions = spec.buckets.front().dimensions;
  if (spec.buckets.size() == 1)
    spec.buckets.clear();
  else if (result.errors.empty())
    nameBuckets(node);
}

void Reader::readPad(const YAML::Node &node) {
  for (const auto &entry : node) {
    std::string name = entry.first.as<std::string>();
    try {
      spec.pad[name] = entry.second.as<double>();
    } catch (const YAML::Exception &) {
      error(entry.second,
            "'pad." + name + "' is '" + text(entry.second) + "', expected a number");
    }
  }
}

void Reader::readValues(const YAML::Node &node) {
  for (const auto &entry : node) {
    std::string name = entry.first.as<std::string>();
    try {
      spec.values[name] = entry.second.IsSequence()
                              ? entry.second.as<std::vector<double>>()
                              : std::vector<double>{entry.second.as<double>()};
    } catch (const YAML::Exception &) {
      error(entry.second, "'values." + name + "' is '" + text(entry.second) +
                              "', expected a number or a list of numbers (the elements "
                              "in row-major order)");
    }
  }
}

/// A number, or the name of what follows the weights (torch.nn.init.calculate_gain).
void Reader::readGain(const YAML::Node &node, InitRule &rule) {
  const std::pair<const char *, double> names[] = {
      {"linear", 1},     {"sigmoid", 1},
      {"tanh", 5.0 / 3}, {"relu", std::sqrt(2.0)},
      {"selu", 3.0 / 4}, {"leaky_relu", std::sqrt(2 / (1 + 0.01 * 0.01))}};
  std::string list;
  for (const auto &[name, gain] : names) {
    if (text(node["gain"]) == name) {
      rule.gain = gain;
      return;
    }
    list += std::string(", ") + name;
  }
  double gain = 1;
  size_t before = result.errors.size();
  number(node, "gain", gain, 0, 1e6);
  if (result.errors.size() > before)
    result.errors.back() += list;
  rule.gain = gain;
}

void Reader::readInitRule(const YAML::Node &node, InitRule rule) {
  read(node, "match", rule.match, "a glob");
  read(node, "from", rule.from, "text");
  bool isGiven = false; // by a number of its own
  for (const char *key : {"normal", "trunc_normal", "uniform"})
    if (node[key]) {
      rule.from = key;
      number(node, key, rule.std, 0, 1e6);
      isGiven = true;
    }
  if (!isGiven && !oneOf(node, rule.from,
                         {"model", "zeros", "ones", "kaiming", "kaiming_normal", "xavier",
                          "xavier_normal", "orthogonal"},
                         {}, "init.from"))
    return;
  number(node, "bound", rule.bound, 0, 1e6);
  std::string mode = "fan_in";
  read(node, "mode", mode, "text");
  oneOf(node["mode"] ? node["mode"] : node, mode, {"fan_in", "fan_out"}, {}, "init.mode");
  rule.fanOut = mode == "fan_out";
  if (node["gain"])
    readGain(node, rule);
  bool isKaiming = rule.from.starts_with("kaiming");
  bool hasGain =
      isKaiming || rule.from.starts_with("xavier") || rule.from == "orthogonal";
  const std::pair<const char *, bool> reading[] = {
      {"gain", hasGain}, {"mode", isKaiming}, {"bound", rule.from == "trunc_normal"}};
  for (auto [key, isRead] : reading)
    if (node[key] && !isRead)
      error(node[key], "'init." + std::string(key) + "' has no effect on " + rule.from +
                           "; remove it");
  if (rule.from == "trunc_normal" && !(rule.bound > rule.std / 4))
    error(node,
          "'bound' is less than a quarter of the deviation; 'uniform' is nearly the "
          "same");
  spec.init.push_back(rule);
}

void Reader::readInit(const YAML::Node &node) {
  readInitRule(node, {});
  for (const YAML::Node &rule : node["rules"])
    if (rule.IsMap())
      readInitRule(rule, {});
}

void Reader::readTies(const YAML::Node &node) {
  for (const YAML::Node &pair : node) {
    std::vector<std::string> names;
    try {
      names = pair.as<std::vector<std::string>>();
    } catch (const YAML::Exception &) {
    }
    if (names.size() != 2) {
      error(pair, "an element of 'tie' must be two names, such as [wte.weight, "
                  "\"head@transpose\"]");
      continue;
    }
    TieSpec tie{names[0], names[1]};
    const std::string suffix = "@transpose";
    if (tie.second.size() > suffix.size() && tie.second.ends_with(suffix)) {
      tie.second.resize(tie.second.size() - suffix.size());
      tie.transpose = true;
    }
    tie.copies = tie.second == tie.first + "@copies";
    if (tie.copies)
      tie.second = tie.first;
    spec.tie.push_back(tie);
  }
}

void Reader::readEntries(const YAML::Node &node) {
  for (const YAML::Node &entry : node)
    oneOf(entry, text(entry), {"step", "eval", "infer", "probe"}, {}, "entries");
}

} // namespace sluice
