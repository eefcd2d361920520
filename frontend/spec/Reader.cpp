#include "frontend/spec/Reader.h"
#include "frontend/SpecKeys.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>
#include <sstream>

namespace sluice {

namespace {

bool matchesKind(const YAML::Node &node, KeyKind kind) {
  switch (kind) {
  case KeyKind::Map:
  case KeyKind::AnyMap:
    return node.IsMap();
  case KeyKind::AnyMaps:
    return node.IsMap() || node.IsSequence();
  case KeyKind::List:
    return node.IsSequence();
  case KeyKind::Any:
    return true;
  default:
    return node.IsScalar();
  }
}

const char *kindName(KeyKind kind) {
  switch (kind) {
  case KeyKind::Map:
  case KeyKind::AnyMap:
    return "a map";
  case KeyKind::AnyMaps:
    return "a map or a list of maps";
  case KeyKind::List:
    return "a list";
  case KeyKind::Integer:
    return "an integer";
  case KeyKind::Number:
    return "a number";
  case KeyKind::Boolean:
    return "true or false";
  default:
    return "text";
  }
}

} // namespace

YAML::Node Reader::loadOverride(const std::string &assignment) {
  std::string lines(overrideLine + overrides.size(), '\n');
  overrides.push_back(assignment);
  return YAML::Load(lines + assignment.substr(assignment.find('=') + 1));
}

std::string Reader::placeOf(const YAML::Mark &mark, const std::string &message) const {
  for (size_t i = 0; i < overrides.size(); ++i) {
    std::string key = overrides[i].substr(0, overrides[i].find('='));
    // Keys that an override has made have no mark; one of them is named first.
    bool isKey = mark.is_null() &&
                 message.find('\'' + key.substr(0, key.find('.'))) != std::string::npos;
    bool isValue = !mark.is_null() && mark.line == overrideLine + static_cast<int>(i);
    if (isKey || isValue)
      return "--set '" + overrides[i] + "'";
  }
  std::string where = file.empty() ? "spec" : file;
  if (!mark.is_null())
    where += ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  return where;
}

/// Unknown keys, planned keys and wrong kinds, everywhere below `node`.
void Reader::checkKeys(const YAML::Node &node, const std::string &path) {
  bool areMaps = findSpecKey(path + "[].match") || findSpecKey(path + "[].at");
  if (node.IsSequence() && areMaps) {
    for (const YAML::Node &element : node)
      if (element.IsMap())
        checkKeys(element, path + "[]");
      else
        error(element,
              "an element of '" + path + "' is " + text(element) + ", expected a map");
    return;
  }
  if (!node.IsMap())
    return;
  std::vector<std::string> seen;
  for (const auto &entry : node) {
    std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    std::string full = path.empty() ? name : path + "." + name;
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      error(entry.first, "'" + full + "' is given twice");
    seen.push_back(name);
    const SpecKey *key = findSpecKey(full);
    if (!key) {
      std::string near = nearestSpecKey(full);
      error(entry.first, "unknown key '" + full + "'" +
                             (near.empty() ? "; docs/spec.md lists the keys"
                                           : "; did you mean '" + near + "'?"));
    } else if (!key->ready) {
      error(entry.first,
            "'" + full + "' is not yet supported (" + key->text + "); remove it");
    } else if (!matchesKind(entry.second, key->kind)) {
      error(entry.second, "'" + full + "' is " + text(entry.second) + ", expected " +
                              kindName(key->kind));
    } else if (key->kind != KeyKind::AnyMap && key->kind != KeyKind::AnyMaps) {
      checkKeys(entry.second, full);
    }
  }
}

/// `optim`: a part of the model's names for each rule.
void Reader::translateOptim(YAML::Node root) {
  YAML::Node old = root["optim"];
  if (!old || !old.IsMap())
    return;
  if (old["macro_architecture"] && text(old["macro_architecture"]) == "true") {
    root["update"]["grouping"] = "topology";
    root["update"]["mode"] = "overlap";
    result.translations.push_back("'optim.macro_architecture' read as 'update: "
                                  "{grouping: topology, mode: overlap}'");
  }
  if (old["group_size"]) {
    root["update"]["grouping"] = "topology";
    root["update"]["group_size"] = old["group_size"];
    result.translations.push_back(
        "'optim.group_size' read as 'update: {grouping: topology, group_size: " +
        text(old["group_size"]) + "}'");
  }
  if (!old["precision_policy"] || !old["precision_policy"].IsMap())
    return;
  std::string rules;
  for (const auto &entry : old["precision_policy"]) {
    YAML::Node rule(YAML::NodeType::Map);
    rule["part"] = entry.first.Scalar();
    rule["storage"] = entry.second;
    root["precision"]["rules"].push_back(rule);
    YAML::Emitter written;
    written << YAML::Flow << entry.second;
    rules += (rules.empty() ? "" : ", ") + ("{part: " + entry.first.Scalar()) +
             ", storage: " + written.c_str() + "}";
  }
  result.translations.push_back("'optim.precision_policy' read as 'precision: {rules: [" +
                                rules + "]}'");
}

/// The spellings of the design notes, rewritten in place before anything else is read.
void Reader::translate(YAML::Node root) {
  translateOptim(root);
  YAML::Node old = root["training_params"];
  if (!old || !old.IsMap())
    return;
  auto note = [&](const std::string &from, const std::string &to) {
    result.translations.push_back("'training_params." + from + "' read as '" + to + "'");
  };
  if (old["batch_size"]) {
    root["shapes"]["batch_size"] = old["batch_size"];
    note("batch_size", "shapes: {batch_size: " + text(old["batch_size"]) + "}");
  }
  if (old["precision"]) {
    root["precision"]["compute"] = old["precision"];
    note("precision", "precision: {compute: " + text(old["precision"]) + "}");
  }
  YAML::Node memory = old["memory"];
  if (memory && memory["checkpointing"] && text(memory["checkpointing"]) == "true") {
    root["memory"]["recompute"] = "auto";
    note("memory.checkpointing", "memory: {recompute: auto}");
  }
  if (memory && memory["offload_threshold"]) {
    root["memory"]["offload"] = "auto";
    root["memory"]["offload_threshold"] = memory["offload_threshold"];
    note("memory.offload_threshold", "memory: {offload: auto, offload_threshold: " +
                                         text(memory["offload_threshold"]) + "}");
  }
  YAML::Node regularization = old["regularization"];
  if (regularization && regularization["ewc_lambda"]) {
    root["continual"]["ewc"]["lambda"] = regularization["ewc_lambda"];
    note("regularization.ewc_lambda",
         "continual: {ewc: {lambda: " + text(regularization["ewc_lambda"]) + "}}");
  }
  if (regularization && regularization["replay_ratio"]) {
    root["continual"]["replay"]["ratio"] = regularization["replay_ratio"];
    note("regularization.replay_ratio",
         "continual: {replay: {ratio: " + text(regularization["replay_ratio"]) + "}}");
  }
  if (!old["optimizer"])
    return;
  static const std::regex form(
      R"(^\s*(\w+)\s*(?:\(\s*lr\s*=\s*([0-9.eE+-]+)\s*\))?\s*$)");
  std::smatch match;
  std::string written = text(old["optimizer"]);
  if (!std::regex_match(written, match, form))
    return error(old["optimizer"], "'training_params.optimizer' is '" + written +
                                       "', expected such as \"AdamW(lr=5e-5)\"");
  std::string kind = match[1];
  for (char &c : kind)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  root["optimizer"]["kind"] = kind;
  if (match[2].matched)
    root["optimizer"]["lr"] = match[2].str();
  note("optimizer", "optimizer: {kind: " + kind +
                        (match[2].matched ? ", lr: " + match[2].str() : "") + "}");
}

bool Reader::oneOf(const YAML::Node &node, const std::string &value,
                   std::initializer_list<const char *> known,
                   std::initializer_list<const char *> later, const std::string &key) {
  std::string list;
  for (const char *name : known) {
    if (value == name)
      return true;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  for (const char *name : later)
    if (value == name) {
      error(node,
            "'" + key + ": " + value + "' is not yet supported; choose one of " + list);
      return false;
    }
  error(node, "'" + key + "' is '" + value + "', expected one of " + list);
  return false;
}

void Reader::number(const YAML::Node &parent, const char *key, double &into, double low,
                    double high) {
  double value = into;
  read(parent, key, value, "a number");
  if (!(value >= low && value <= high)) {
    std::ostringstream range;
    range << "'" << key << "' is " << value << ", expected at least " << low;
    if (std::isfinite(high))
      range << " and at most " << high;
    return error(parent[key], range.str());
  }
  into = value;
}

void Reader::count(const YAML::Node &parent, const char *key, int64_t &into,
                   int64_t low) {
  int64_t value = into;
  read(parent, key, value, "an integer");
  if (value < low && parent[key])
    return error(parent[key], "'" + std::string(key) + "' is " + std::to_string(value) +
                                  ", expected at least " + std::to_string(low));
  into = value;
}

} // namespace sluice
