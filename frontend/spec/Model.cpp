#include "frontend/spec/Reader.h"

#include <sstream>

namespace sluice {

void Reader::readShapes(const YAML::Node &node) {
  for (const auto &entry : node) {
    std::string name = entry.first.as<std::string>();
    try {
      if (entry.second.IsSequence()) {
        auto shape = entry.second.as<std::vector<int64_t>>();
        for (int64_t size : shape)
          if (size < 0)
            error(entry.second, "shape of '" + name + "' has a negative dimension");
        spec.shapes[name] = shape;
      } else {
        int64_t size = entry.second.as<int64_t>();
        if (size < 0)
          error(entry.second, "dimension '" + name + "' is negative");
        spec.dimensions[name] = size;
      }
    } catch (const YAML::Exception &) {
      error(entry.second, "'shapes." + name + "' is '" + text(entry.second) +
                              "', expected a list of sizes (an input) or one size (a "
                              "symbolic dimension)");
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

void Reader::readInitRule(const YAML::Node &node, InitRule rule) {
  read(node, "match", rule.match, "a glob");
  if (node["normal"]) {
    rule.from = "normal";
    number(node, "normal", rule.std, 0, 1e6);
  }
  read(node, "from", rule.from, "text");
  if (!node["normal"] && oneOf(node, rule.from,
                               {"model", "zeros", "ones", "kaiming", "kaiming_normal",
                                "xavier", "xavier_normal"},
                               {}, "init.from"))
    spec.init.push_back(rule);
  else if (node["normal"])
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
    oneOf(entry, text(entry), {"step", "eval", "infer"}, {"probe", "fisher"}, "entries");
}

} // namespace sluice
