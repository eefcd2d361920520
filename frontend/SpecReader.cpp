#include "frontend/SpecReader.h"
#include "frontend/spec/Reader.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace sluice {

std::optional<int64_t> parseSize(const std::string &text) {
  static const std::regex form(
      R"(^\s*([0-9]+(?:\.[0-9]+)?)\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)?\s*$)");
  std::smatch match;
  if (!std::regex_match(text, match, form))
    return std::nullopt;
  static const std::pair<const char *, double> units[] = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (auto &[name, factor] : units)
    if (match[2] == name) {
      double bytes = std::stod(match[1]) * factor;
      if (bytes >= 0x1p62)
        return std::nullopt;
      return static_cast<int64_t>(bytes);
    }
  return std::nullopt;
}

void Reader::fill(const YAML::Node &root) {
  int64_t threads = 0, seed = 0;
  count(root, "threads", threads, 1);
  count(root, "seed", seed, 0);
  spec.threads = static_cast<int>(std::min<int64_t>(threads, 1024));
  spec.seed = static_cast<uint64_t>(seed);
  std::pair<const char *, void (Reader::*)(const YAML::Node &)> sections[] = {
      {"shapes", &Reader::readShapes},
      {"pad", &Reader::readPad},
      {"values", &Reader::readValues},
      {"init", &Reader::readInit},
      {"loss", &Reader::readLoss},
      {"optimizer", &Reader::readOptimizer},
      {"parameter_groups", &Reader::readGroups},
      {"schedule", &Reader::readSchedule},
      {"accumulate", &Reader::readAccumulate},
      {"clip", &Reader::readClip},
      {"spikes", &Reader::readSpikes},
      {"changes", &Reader::readChanges},
      {"lora", &Reader::readLora},
      {"memory", &Reader::readMemory},
      {"update", &Reader::readUpdate},
      {"parallel", &Reader::readParallel},
      {"comm", &Reader::readComm},
      {"precision", &Reader::readPrecision},
      {"continual", &Reader::readContinual},
      {"tie", &Reader::readTies},
      {"entries", &Reader::readEntries}};
  for (auto &[key, method] : sections)
    if (root[key])
      (this->*method)(root[key]);
  // Adapters train alone, as PEFT's do, unless the spec names what trains beside them.
  if (!spec.lora.empty())
    spec.trainable = {"*.lora_A", "*.lora_B"};
  read(root, "trainable", spec.trainable, "a list of globs");
  read(root, "frozen", spec.frozen, "a list of globs");
  read(root, "untie", spec.untie, "a list of names");
  read(root, "promote", spec.promote, "a list of names");
  read(root, "entries", spec.entries, "a list of entry names");
  read(root, "gradient_norms", spec.gradientNorms, "true or false");
  checkContinual(root);
  checkReplay(root);
  checkMasks(root);
  checkHealth(root);
}

namespace {

constexpr const char *overrideMark = "\n# --set ";

/// Puts a command-line KEY=VALUE into the tree.
void override(YAML::Node root, const std::string &assignment, Reader &reader) {
  std::vector<std::string> &errors = reader.result.errors;
  size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    errors.push_back("--set '" + assignment + "': expected KEY=VALUE");
    return;
  }
  std::string key = assignment.substr(0, equals);
  try {
    YAML::Node value = reader.loadOverride(assignment);
    std::vector<YAML::Node> chain = {root};
    std::istringstream parts(key);
    std::vector<std::string> names;
    for (std::string name; std::getline(parts, name, '.');)
      names.push_back(name);
    for (size_t i = 0; i + 1 < names.size(); ++i) {
      YAML::Node next = chain.back()[names[i]];
      if (next && next.IsDefined() && !next.IsMap() && !next.IsNull()) {
        errors.push_back("--set '" + assignment + "': '" + names[i] + "' is not a map");
        return;
      }
      chain.push_back(next);
    }
    chain.back()[names.back()] = value;
  } catch (const YAML::Exception &e) {
    errors.push_back("--set '" + assignment + "': " + e.msg);
  }
}

} // namespace

static SpecResult readBytes(const std::string &bytes, const std::string &name,
                            const std::vector<std::string> &overrides) {
  Reader reader(name);
  YAML::Node root(YAML::NodeType::Map);
  try {
    reader.spec.text = bytes;
    if (!bytes.empty())
      root = YAML::Load(bytes);
    if (root.IsNull())
      root = YAML::Node(YAML::NodeType::Map);
    if (!root.IsMap())
      return {std::nullopt, {name + ":1:1: the spec is not a map of keys"}, {}};
    for (const std::string &assignment : overrides) {
      override(root, assignment, reader);
      reader.spec.text += overrideMark + assignment;
    }
    reader.checkKeys(root, "");
    reader.translate(root);
    if (reader.result.errors.empty())
      reader.fill(root);
  } catch (const YAML::Exception &e) {
    std::string where = name.empty() ? "spec" : name;
    if (!e.mark.is_null())
      where +=
          ":" + std::to_string(e.mark.line + 1) + ":" + std::to_string(e.mark.column + 1);
    reader.result.errors.push_back(where + ": " + e.msg);
  }
  if (reader.result.errors.empty())
    reader.result.spec = std::move(reader.spec);
  return std::move(reader.result);
}

SpecResult readSpec(const std::string &path, const std::vector<std::string> &overrides) {
  if (path.empty())
    return readBytes("", path, overrides);
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    return {std::nullopt, {"cannot read the spec '" + path + "': check the path"}, {}};
  std::stringstream bytes;
  bytes << in.rdbuf();
  return readBytes(bytes.str(), path, overrides);
}

SpecResult readSpecText(const std::string &text, const std::string &name) {
  std::vector<std::string> overrides;
  std::string bytes = text;
  // Only the last lines are overrides: a comment inside the file is none.
  for (size_t at = bytes.rfind('\n'); at != std::string::npos; at = bytes.rfind('\n')) {
    if (bytes.compare(at, std::strlen(overrideMark), overrideMark) != 0)
      break;
    overrides.insert(overrides.begin(), bytes.substr(at + std::strlen(overrideMark)));
    bytes.resize(at);
  }
  return readBytes(bytes, name, overrides);
}

} // namespace sluice
