#include "frontend/DeviceReader.h"

#include "frontend/SpecReader.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <yaml-cpp/yaml.h>

namespace sluice {
namespace {

struct ShippedDevice {
  const char *name, *text;
};
/// frontend/devices/*.yaml.
const ShippedDevice shipped[] = {
#include "frontend/ShippedDevices.inc"
};

/// One number of a profile: section (may be empty) and key.
struct RateField {
  const char *section, *key;
  double *value;
};

std::vector<RateField> fieldsOf(DeviceRates &r) {
  std::vector<RateField> fields;
  auto product = [&](const char *section, ProductRates &rates) {
    fields.push_back({section, "flops", &rates.flops});
    fields.push_back({section, "left", &rates.left});
    fields.push_back({section, "right", &rates.right});
    fields.push_back({section, "store", &rates.store});
  };
  product("product", r.product);
  product("conv", r.conv);
  product("conv_weight_grad", r.convWeightGrad);
  for (RateField field : {RateField{"flops", "f64", &r.f64Flops},
                          {"flops", "bf16", &r.bf16Flops},
                          {"flops", "f16", &r.f16Flops},
                          {"flops", "f8", &r.f8Flops},
                          {"flops", "conv16", &r.conv16Flops},
                          {"flops", "vector", &r.vectorFlops},
                          {"bytes", "index", &r.indexBytes},
                          {"bytes", "move", &r.moveBytes},
                          {"launch", "us", &r.launchUs},
                          {"launch", "sync_us", &r.syncUs},
                          {"link", "rate", &r.linkBytesPerSecond},
                          {"link", "latency_us", &r.linkLatencyUs},
                          {"ranks", "rate", &r.rankBytesPerSecond},
                          {"ranks", "latency_us", &r.rankLatencyUs},
                          {"ranks", "rounds", &r.rankRounds},
                          {"ranks", "message_us", &r.rankMessageUs},
                          {"ranks", "host_rate", &r.rankHostBytesPerSecond},
                          {"nodes", "ranks", &r.ranksPerNode},
                          {"nodes", "rate", &r.nodeBytesPerSecond},
                          {"nodes", "latency_us", &r.nodeLatencyUs}})
    fields.push_back(field);
  return fields;
}

class DeviceParser {
public:
  explicit DeviceParser(std::string origin) : origin(std::move(origin)) {}

  DeviceResult run(const std::string &text) {
    try {
      YAML::Node root = YAML::Load(text);
      if (!root.IsMap())
        return {std::nullopt, {origin + ":1:1: the profile is not a map of keys"}};
      fill(root);
    } catch (const YAML::Exception &e) {
      error(e.mark, e.msg);
    }
    if (result.errors.empty())
      result.profile = profile;
    return result;
  }

private:
  void error(const YAML::Mark &mark, const std::string &message) {
    std::string where = origin;
    if (!mark.is_null())
      where +=
          ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
    result.errors.push_back(where + ": " + message);
  }

  void checkKeys(const YAML::Node &map, const std::vector<std::string> &known) {
    for (const auto &entry : map) {
      std::string key = entry.first.as<std::string>();
      if (std::find(known.begin(), known.end(), key) != known.end())
        continue;
      std::string list;
      for (const std::string &name : known)
        list += (list.empty() ? "" : ", ") + name;
      error(entry.first.Mark(), "unknown key '" + key + "', expected one of " + list);
    }
  }

  void number(const YAML::Node &node, const std::string &key, double &into) {
    if (!node)
      return;
    double value = NAN;
    try {
      value = node.as<double>();
    } catch (const YAML::Exception &) {
    }
    if (!(value >= 0 && value <= 1e18))
      return error(node.Mark(), "'" + key + "' is no number from 0 to 1e18");
    into = value;
  }

  void size(const YAML::Node &node, const std::string &key, int64_t &into) {
    if (!node)
      return;
    std::optional<int64_t> bytes =
        node.IsScalar() ? parseSize(node.Scalar()) : std::nullopt;
    if (!bytes)
      return error(node.Mark(),
                   "'" + key + "' is no size, expected bytes or such as 40GiB");
    into = *bytes;
  }

  void count(const YAML::Node &node, const std::string &key, int64_t &into) {
    double value = double(into);
    number(node, key, value);
    if (value < 1 || value > 1e6 || value != std::floor(value))
      return error(node.Mark(), "'" + key + "' is no whole number from 1 to 1e6");
    into = int64_t(value);
  }

  void fill(const YAML::Node &root) {
    checkKeys(root, {"name", "target", "arch", "memory", "context", "product", "conv",
                     "conv_weight_grad", "flops", "bytes", "launch", "link", "ranks",
                     "nodes", "bandwidth", "scaling", "tile", "processors"});
    for (auto [key, into] : {std::pair{"name", &profile.name},
                             {"target", &profile.target},
                             {"arch", &profile.arch}})
      if (YAML::Node node = root[key])
        *into = node.as<std::string>();
    if (profile.target != "cpu" && profile.target != "cuda")
      error(root["target"].Mark(),
            "'target' is '" + profile.target + "', expected cpu or cuda");
    size(root["memory"], "memory", profile.memoryBytes);
    readContext(root["context"]);
    readRates(root);
    readBandwidth(root["bandwidth"]);
    readScaling(root["scaling"]);
  }

  void readContext(const YAML::Node &node) {
    for (const auto &entry : node) {
      DeviceItem item;
      checkKeys(entry, {"name", "bytes"});
      item.name = entry["name"] ? entry["name"].as<std::string>() : "";
      size(entry["bytes"], "bytes", item.bytes);
      profile.context.push_back(item);
    }
  }

  void readRates(const YAML::Node &root) {
    std::vector<RateField> fields = fieldsOf(profile.rates);
    for (const char *section : {"product", "conv", "conv_weight_grad", "flops", "bytes",
                                "launch", "link", "ranks", "nodes"}) {
      YAML::Node map = root[section];
      if (!map)
        continue;
      if (!map.IsMap()) {
        error(map.Mark(), "'" + std::string(section) + "' is no map");
        continue;
      }
      std::vector<std::string> keys;
      for (const RateField &field : fields)
        if (std::string(field.section) == section) {
          keys.push_back(field.key);
          number(map[field.key], field.key, *field.value);
        }
      checkKeys(map, keys);
    }
    checkLinks(root);
    if (YAML::Node tile = root["tile"]) {
      checkKeys(tile, {"rows", "cols"});
      count(tile["rows"], "rows", profile.rates.tileRows);
      count(tile["cols"], "cols", profile.rates.tileCols);
    }
    if (root["processors"])
      count(root["processors"], "processors", profile.rates.processors);
  }

  void checkLinks(const YAML::Node &root) {
    const DeviceRates &rates = profile.rates;
    for (auto [section, rate] : {std::pair{"ranks", rates.rankBytesPerSecond},
                                 {"nodes", rates.nodeBytesPerSecond}})
      if (rate <= 0)
        error(root[section].Mark(),
              "'" + std::string(section) + "' needs a rate above 0");
    if (rates.ranksPerNode != std::floor(rates.ranksPerNode) || rates.ranksPerNode > 1e6)
      error(root["nodes"].Mark(), "'nodes' has no whole number of 'ranks' up to 1e6");
  }

  void readBandwidth(const YAML::Node &node) {
    if (!node)
      return;
    profile.rates.memory.clear();
    int64_t last = 0;
    for (const auto &entry : node) {
      BandwidthPoint point;
      checkKeys(entry, {"bytes", "rate"});
      size(entry["bytes"], "bytes", point.bytes);
      number(entry["rate"], "rate", point.bytesPerSecond);
      if (point.bytes <= last || point.bytesPerSecond <= 0)
        return error(entry.Mark(), "'bandwidth' needs rising sizes and rates above 0");
      last = point.bytes;
      profile.rates.memory.push_back(point);
    }
    if (profile.rates.memory.empty())
      error(node.Mark(), "'bandwidth' is empty");
  }

  void readScaling(const YAML::Node &node) {
    if (!node)
      return;
    profile.rates.scaling.clear();
    int64_t last = 0;
    for (const auto &entry : node) {
      ThreadScaling at;
      checkKeys(entry, {"threads", "matrix", "vector", "memory"});
      count(entry["threads"], "threads", at.threads);
      number(entry["matrix"], "matrix", at.matrix);
      number(entry["vector"], "vector", at.vector);
      number(entry["memory"], "memory", at.memory);
      if (at.threads <= last || at.matrix <= 0 || at.vector <= 0 || at.memory <= 0)
        return error(entry.Mark(), "'scaling' needs rising threads and factors above 0");
      last = at.threads;
      profile.rates.scaling.push_back(at);
    }
  }

  std::string origin;
  DeviceProfile profile;
  DeviceResult result;
};

std::string numberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

} // namespace

std::vector<std::string> shippedDevices() {
  std::vector<std::string> names;
  for (const ShippedDevice &device : shipped)
    names.push_back(device.name);
  return names;
}

DeviceResult parseDevice(const std::string &text, const std::string &origin) {
  return DeviceParser(origin).run(text);
}

DeviceResult readDevice(const std::string &nameOrPath) {
  for (const ShippedDevice &device : shipped)
    if (nameOrPath == device.name)
      return parseDevice(device.text, nameOrPath);
  if (nameOrPath.find_first_of("/.") == std::string::npos) {
    std::string list;
    for (const std::string &name : shippedDevices())
      list += (list.empty() ? "" : ", ") + name;
    return {std::nullopt,
            {"unknown device '" + nameOrPath + "', expected one of " + list +
             ", or a YAML file"}};
  }
  std::ifstream in(nameOrPath);
  if (!in)
    return {std::nullopt,
            {"cannot read the device profile '" + nameOrPath + "': check the path"}};
  std::stringstream bytes;
  bytes << in.rdbuf();
  return parseDevice(bytes.str(), nameOrPath);
}

std::string deviceText(const DeviceProfile &profile, const std::string &comment) {
  std::ostringstream out;
  std::istringstream lines(comment);
  for (std::string line; std::getline(lines, line);)
    out << "# " << line << "\n";
  out << "name: " << profile.name << "\ntarget: " << profile.target << "\n";
  if (!profile.arch.empty())
    out << "arch: " << profile.arch << "\n";
  if (profile.memoryBytes > 0)
    out << "memory: " << profile.memoryBytes << "\n";
  if (!profile.context.empty())
    out << "context:\n";
  for (const DeviceItem &item : profile.context)
    out << "  - {name: \"" << item.name << "\", bytes: " << item.bytes << "}\n";
  DeviceRates rates = profile.rates;
  std::string section;
  for (const RateField &field : fieldsOf(rates)) {
    if (section != field.section)
      out << (section.empty() ? "" : "}\n") << field.section << ": {";
    else
      out << ", ";
    section = field.section;
    out << field.key << ": " << numberText(*field.value);
  }
  out << "}\nbandwidth:\n";
  for (const BandwidthPoint &point : rates.memory)
    out << "  - {bytes: " << point.bytes << ", rate: " << numberText(point.bytesPerSecond)
        << "}\n";
  out << "scaling:\n";
  for (const ThreadScaling &at : rates.scaling)
    out << "  - {threads: " << at.threads << ", matrix: " << numberText(at.matrix)
        << ", vector: " << numberText(at.vector) << ", memory: " << numberText(at.memory)
        << "}\n";
  out << "tile: {rows: " << rates.tileRows << ", cols: " << rates.tileCols
      << "}\nprocessors: " << rates.processors << "\n";
  return out.str();
}

} // namespace sluice
