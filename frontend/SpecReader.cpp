#include "frontend/SpecReader.h"
#include "frontend/SpecKeys.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>
#include <yaml-cpp/yaml.h>

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

namespace {

class Reader {
public:
  explicit Reader(std::string file) : file(std::move(file)) {}

  SpecResult result;
  TrainingSpec spec;

  void error(const YAML::Node &at, const std::string &message) {
    auto mark = at.Mark();
    std::string where = file.empty() ? "spec" : file;
    if (!mark.is_null())
      where +=
          ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
    result.errors.push_back(where + ": " + message);
  }

  void checkKeys(const YAML::Node &node, const std::string &path);
  void translate(YAML::Node root);
  void fill(const YAML::Node &root);

private:
  template <typename T>
  void read(const YAML::Node &parent, const char *key, T &into, const char *expected) {
    YAML::Node node = parent[key];
    if (!node)
      return;
    try {
      into = node.as<T>();
    } catch (const YAML::Exception &) {
      error(node,
            "'" + std::string(key) + "' is '" + text(node) + "', expected " + expected);
    }
  }
  template <typename T>
  void read(const YAML::Node &parent, const char *key, std::optional<T> &into,
            const char *expected) {
    if (!parent[key])
      return;
    T value{};
    size_t before = result.errors.size();
    read(parent, key, value, expected);
    if (result.errors.size() == before)
      into = value;
  }
  static std::string text(const YAML::Node &node) {
    return node.IsScalar()     ? node.Scalar()
           : node.IsSequence() ? "a list"
           : node.IsMap()      ? "a map"
                               : "nothing";
  }
  bool oneOf(const YAML::Node &node, const std::string &value,
             std::initializer_list<const char *> known,
             std::initializer_list<const char *> later, const std::string &key);
  void number(const YAML::Node &parent, const char *key, double &into, double low,
              double high);
  void count(const YAML::Node &parent, const char *key, int64_t &into, int64_t low);

  void readShapes(const YAML::Node &node);
  void readValues(const YAML::Node &node);
  void readInit(const YAML::Node &node);
  void readInitRule(const YAML::Node &node, InitRule rule);
  void readLoss(const YAML::Node &node);
  void readOptimizer(const YAML::Node &node);
  bool isOptimizer(const YAML::Node &at, const std::string &kind, const std::string &key);
  void readOptimizerModes(const YAML::Node &node);
  void readScheduleTable(const YAML::Node &node);
  void checkSchedule(const YAML::Node &node);
  void readBetas(const YAML::Node &node, double &beta1, double &beta2);
  void readGroups(const YAML::Node &node);
  void readSchedule(const YAML::Node &node);
  void readAccumulate(const YAML::Node &node);
  void readClip(const YAML::Node &node);
  void readRecompute(const YAML::Node &node);
  void readMemory(const YAML::Node &node);
  void readTies(const YAML::Node &node);
  void readEntries(const YAML::Node &node);

  std::string file;
};

bool matchesKind(const YAML::Node &node, KeyKind kind) {
  switch (kind) {
  case KeyKind::Map:
  case KeyKind::AnyMap:
    return node.IsMap();
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

/// Unknown keys, planned keys and wrong kinds, everywhere below `node`.
void Reader::checkKeys(const YAML::Node &node, const std::string &path) {
  if (node.IsSequence() && findSpecKey(path + "[].match")) {
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
    } else if (key->kind != KeyKind::AnyMap) {
      checkKeys(entry.second, full);
    }
  }
}

/// The spellings of the design notes, rewritten in place before anything else is read.
void Reader::translate(YAML::Node root) {
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

void Reader::readLoss(const YAML::Node &node) {
  LossSpec &loss = spec.loss;
  read(node, "kind", loss.kind, "text");
  if (loss.kind.empty())
    return error(node, "'loss' has no 'kind'; expected one of cross_entropy, mse, l1, "
                       "huber, kl, nll, sum, bce_with_logits, output");
  oneOf(node["kind"], loss.kind,
        {"cross_entropy", "mse", "l1", "huber", "kl", "nll", "sum", "bce_with_logits",
         "output"},
        {"ctc", "triplet"}, "loss.kind");
  read(node, "logits", loss.logits, "a name");
  read(node, "labels", loss.labels, "a name");
  read(node, "name", loss.name, "a name");
  read(node, "ignore_index", loss.ignoreIndex, "an integer");
  if (node["class_axis"])
    read(node, "class_axis", loss.classAxis.emplace(), "an integer");
  read(node, "class_weights", loss.classWeights, "a list of numbers");
  number(node, "label_smoothing", loss.labelSmoothing, 0, 1);
  number(node, "pos_weight", loss.posWeight, 0, 1e30);
  number(node, "delta", loss.delta, 1e-30, 1e30);
  if (loss.kind == "output" && loss.name.empty())
    error(node, "'loss: {kind: output}' needs 'name', the model's scalar loss");
}

void Reader::readBetas(const YAML::Node &node, double &beta1, double &beta2) {
  std::vector<double> betas;
  read(node, "betas", betas, "two numbers, such as [0.9, 0.999]");
  if (!node["betas"] || (betas.empty() && !node["betas"].IsSequence()))
    return;
  if (betas.size() != 2 || betas[0] < 0 || betas[0] >= 1 || betas[1] < 0 || betas[1] >= 1)
    return error(node["betas"],
                 "'betas' must be two numbers from 0 to below 1, such as [0.9, 0.999]");
  beta1 = betas[0];
  beta2 = betas[1];
}

/// Keys of `optimizer` that only some kinds read: a key without effect is an error.
static const struct {
  const char *key;
  std::vector<std::string> kinds;
} kOptimizerKeys[] = {
    {"betas", {"adam", "adamw", "nadam", "radam", "lamb", "lion", "muon"}},
    {"eps",
     {"adam", "adamw", "nadam", "radam", "lamb", "adagrad", "rmsprop", "adafactor",
      "muon"}},
    {"eps_mode", {"adam", "adamw"}},
    {"momentum", {"sgd", "rmsprop", "muon"}},
    {"dampening", {"sgd"}},
    {"nesterov", {"sgd", "muon"}},
    {"amsgrad", {"adam", "adamw"}},
    {"momentum_decay", {"nadam"}},
    {"decoupled_weight_decay", {"nadam", "radam"}},
    {"lr_decay", {"adagrad"}},
    {"initial_accumulator_value", {"adagrad"}},
    {"alpha", {"rmsprop"}},
    {"centered", {"rmsprop"}},
    {"beta2_decay", {"adafactor"}},
    {"eps2", {"adafactor"}},
    {"d", {"adafactor"}},
    {"ns_steps", {"muon"}},
    {"adjust_lr_fn", {"muon"}},
};

bool Reader::isOptimizer(const YAML::Node &at, const std::string &kind,
                         const std::string &key) {
  std::string list;
  for (const char *name : kOptimizerKinds) {
    if (kind == name)
      return true;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  error(at, "'" + key + "' is '" + kind + "', expected one of " + list);
  return false;
}

void Reader::readOptimizer(const YAML::Node &node) {
  OptimizerSpec &optimizer = spec.optimizer;
  std::string kind = optimizer.kind;
  read(node, "kind", kind, "text");
  if (!isOptimizer(node["kind"] ? node["kind"] : node, kind, "optimizer.kind"))
    return;
  optimizer = optimizerDefaults(kind);
  for (const auto &[key, kinds] : kOptimizerKeys)
    if (node[key] && std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      error(node[key], "'optimizer." + std::string(key) + "' has no effect on " + kind +
                           "; remove it");
  number(node, "lr", optimizer.lr, 0, 1e6);
  readBetas(node, optimizer.beta1, optimizer.beta2);
  number(node, "eps", optimizer.eps, 0, 1);
  number(node, "weight_decay", optimizer.weightDecay, 0, 1e6);
  number(node, "momentum", optimizer.momentum, 0, 1);
  number(node, "dampening", optimizer.dampening, 0, 1);
  number(node, "momentum_decay", optimizer.momentumDecay, 0, 1e6);
  number(node, "lr_decay", optimizer.lrDecay, 0, 1e6);
  number(node, "initial_accumulator_value", optimizer.initialAccumulator, 0, 1e30);
  number(node, "alpha", optimizer.alpha, 0, 1);
  number(node, "beta2_decay", optimizer.beta2Decay, -10, 0);
  number(node, "eps2", optimizer.eps2, 0, 1e6);
  number(node, "d", optimizer.d, 1, 1e6);
  count(node, "ns_steps", optimizer.nsSteps, 1);
  read(node, "nesterov", optimizer.nesterov, "true or false");
  read(node, "amsgrad", optimizer.amsgrad, "true or false");
  read(node, "decoupled_weight_decay", optimizer.decoupledWeightDecay, "true or false");
  read(node, "centered", optimizer.centered, "true or false");
  readOptimizerModes(node);
}

void Reader::readOptimizerModes(const YAML::Node &node) {
  OptimizerSpec &optimizer = spec.optimizer;
  std::string mode = "after_correction", adjust = "original";
  read(node, "eps_mode", mode, "text");
  if (oneOf(node["eps_mode"] ? node["eps_mode"] : node, mode,
            {"after_correction", "before_correction"}, {}, "optimizer.eps_mode"))
    optimizer.epsBeforeCorrection = mode == "before_correction";
  read(node, "adjust_lr_fn", adjust, "text");
  if (oneOf(node["adjust_lr_fn"] ? node["adjust_lr_fn"] : node, adjust,
            {"original", "match_rms_adamw"}, {}, "optimizer.adjust_lr_fn"))
    optimizer.matchRmsAdamw = adjust == "match_rms_adamw";
  if (optimizer.nsSteps > 100)
    error(node["ns_steps"], "'ns_steps' is " + std::to_string(optimizer.nsSteps) +
                                ", expected at most 100");
  if (optimizer.kind == "sgd" && optimizer.nesterov &&
      (optimizer.momentum == 0 || optimizer.dampening != 0))
    error(node, "'nesterov' needs 'momentum' above 0 and 'dampening' 0");
  if (optimizer.kind == "radam" && optimizer.beta2 <= 0.6)
    error(node, "'radam' needs a second beta above 0.6, or no update is ever rectified");
}

void Reader::readGroups(const YAML::Node &node) {
  for (const YAML::Node &entry : node) {
    if (!entry.IsMap())
      continue;
    ParameterGroupSpec group;
    read(entry, "match", group.match, "a glob");
    if (group.match.empty())
      error(entry, "an element of 'parameter_groups' has no 'match'");
    read(entry, "frozen", group.frozen, "true or false");
    read(entry, "kind", group.kind, "text");
    if (group.kind)
      isOptimizer(entry["kind"], *group.kind, "parameter_groups[].kind");
    read(entry, "lr", group.lr, "a number");
    read(entry, "eps", group.eps, "a number");
    read(entry, "weight_decay", group.weightDecay, "a number");
    read(entry, "momentum", group.momentum, "a number");
    read(entry, "dampening", group.dampening, "a number");
    if (entry["betas"]) {
      double beta1 = 0, beta2 = 0;
      readBetas(entry, beta1, beta2);
      group.beta1 = beta1;
      group.beta2 = beta2;
    }
    spec.parameterGroups.push_back(group);
  }
}

void Reader::readSchedule(const YAML::Node &node) {
  ScheduleSpec &schedule = spec.schedule;
  read(node, "kind", schedule.kind, "text");
  oneOf(node["kind"] ? node["kind"] : node, schedule.kind,
        {"constant", "linear", "cosine", "wsd", "one_cycle", "step", "table"}, {},
        "schedule.kind");
  count(node, "warmup_steps", schedule.warmupSteps, 0);
  count(node, "total_steps", schedule.totalSteps, 1);
  number(node, "lr_scale", schedule.lrScale, 0, 1e6);
  number(node, "warmup_scale", schedule.warmupScale, 0, 1e6);
  number(node, "min_ratio", schedule.minRatio, 0, 1);
  count(node, "decay_steps", schedule.decaySteps, 1);
  read(node, "decay", schedule.decay, "text");
  oneOf(node["decay"] ? node["decay"] : node, schedule.decay,
        {"linear", "cosine", "1-sqrt"}, {}, "schedule.decay");
  count(node, "step_size", schedule.stepSize, 1);
  number(node, "gamma", schedule.gamma, 0, 1e3);
  number(node, "pct_start", schedule.pctStart, 0, 1);
  number(node, "div_factor", schedule.divFactor, 1e-6, 1e12);
  number(node, "final_div_factor", schedule.finalDivFactor, 1e-6, 1e12);
  read(node, "milestones", schedule.points, "a list of updates");
  readScheduleTable(node["table"]);
  checkSchedule(node);
}

void Reader::readScheduleTable(const YAML::Node &node) {
  if (!node)
    return;
  std::vector<std::pair<int64_t, double>> pairs;
  try {
    pairs = node.as<std::vector<std::pair<int64_t, double>>>();
  } catch (const YAML::Exception &) {
    return error(node,
                 "'table' is no list of pairs, expected such as [[0, 1], [1000, 0.1]]");
  }
  for (auto [point, factor] : pairs) {
    if (!(factor >= 0 && factor <= 1e6))
      error(node, "'table' has a factor that is no number from 0 to 1e6");
    spec.schedule.points.push_back(point);
    spec.schedule.factors.push_back(factor);
  }
}

/// Each kind has what it needs, and nothing that it does not read.
void Reader::checkSchedule(const YAML::Node &node) {
  const ScheduleSpec &schedule = spec.schedule;
  const std::string &kind = schedule.kind;
  static const struct {
    const char *key;
    std::vector<std::string> kinds;
  } keys[] = {{"min_ratio", {"linear", "cosine", "wsd"}},
              {"decay_steps", {"wsd"}},
              {"decay", {"wsd"}},
              {"step_size", {"step"}},
              {"milestones", {"step"}},
              {"gamma", {"step"}},
              {"pct_start", {"one_cycle"}},
              {"div_factor", {"one_cycle"}},
              {"final_div_factor", {"one_cycle"}},
              {"warmup_steps", {"constant", "linear", "cosine", "wsd", "step", "table"}},
              {"table", {"table"}}};
  for (const auto &[key, kinds] : keys)
    if (node[key] && std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      error(node[key], "'schedule." + std::string(key) + "' has no effect on " + kind +
                           "; remove it");
  auto needs = [&](const std::string &key) {
    error(node, "'schedule: {kind: " + kind + "}' needs '" + key + "'");
  };
  bool isOpenEnded = kind == "constant" || kind == "step" || kind == "table";
  if (!isOpenEnded && schedule.totalSteps == 0)
    needs("total_steps");
  if (kind == "wsd" && schedule.decaySteps == 0)
    needs("decay_steps");
  if (kind == "wsd" && schedule.totalSteps > 0 &&
      schedule.decaySteps > schedule.totalSteps)
    error(node["decay_steps"], "'decay_steps' is " + std::to_string(schedule.decaySteps) +
                                   ", expected at most 'total_steps', " +
                                   std::to_string(schedule.totalSteps));
  if (kind == "step" && (schedule.stepSize > 0) == !schedule.points.empty())
    needs("step_size' or 'milestones");
  if (kind == "table" && schedule.points.empty())
    needs("table");
  for (size_t i = 0; i < schedule.points.size(); ++i)
    if (schedule.points[i] < 0 || (i > 0 && schedule.points[i] <= schedule.points[i - 1]))
      return error(node, "the updates of 'schedule." +
                             std::string(kind == "step" ? "milestones" : "table") +
                             "' must rise from 0 or above");
}

void Reader::readAccumulate(const YAML::Node &node) {
  if (node.IsMap() && !node["count"])
    return error(node, "'accumulate' has no 'count'");
  YAML::Node value = node.IsMap() ? node["count"] : node;
  try {
    spec.accumulate = value.as<int64_t>();
  } catch (const YAML::Exception &) {
    return error(value, "'accumulate' is '" + text(value) +
                            "', expected an integer of at least 1");
  }
  if (spec.accumulate < 1)
    error(value,
          "'accumulate' is " + std::to_string(spec.accumulate) + ", expected at least 1");
}

void Reader::readClip(const YAML::Node &node) {
  read(node, "kind", spec.clip.kind, "text");
  oneOf(node["kind"] ? node["kind"] : node, spec.clip.kind, {"none", "global_norm"},
        {"group_norm", "agc", "zclip"}, "clip.kind");
  number(node, "max", spec.clip.max, 0, 1e30);
  if (spec.clip.kind == "global_norm" && spec.clip.max <= 0)
    error(node, "'clip: {kind: global_norm}' needs 'max' above 0");
}

void Reader::readRecompute(const YAML::Node &node) {
  if (node.IsMap() && node["every"]) {
    spec.recompute = "every";
    count(node, "every", spec.recomputeEvery, 1);
  } else if (node.IsMap()) {
    error(node, "'memory.recompute' is a map without 'every'; expected none, sqrt, auto "
                "or {every: N}");
  } else if (oneOf(node, text(node), {"none", "sqrt", "auto"}, {}, "memory.recompute")) {
    spec.recompute = text(node);
  }
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
  read(node, "keep", spec.keep, "a list of names");
  if (YAML::Node offload = node["offload"])
    oneOf(offload, text(offload), {"none"}, {"auto", "host"}, "memory.offload");
  if (YAML::Node order = node["order"])
    oneOf(order, text(order), {"auto"}, {}, "memory.order");
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
    spec.tie.push_back(tie);
  }
}

void Reader::readEntries(const YAML::Node &node) {
  for (const YAML::Node &entry : node)
    oneOf(entry, text(entry), {"step", "eval", "infer"}, {"probe", "fisher"}, "entries");
}

void Reader::fill(const YAML::Node &root) {
  int64_t threads = 0, seed = 0;
  count(root, "threads", threads, 1);
  count(root, "seed", seed, 0);
  spec.threads = static_cast<int>(std::min<int64_t>(threads, 1024));
  spec.seed = static_cast<uint64_t>(seed);
  std::pair<const char *, void (Reader::*)(const YAML::Node &)> sections[] = {
      {"shapes", &Reader::readShapes},
      {"values", &Reader::readValues},
      {"init", &Reader::readInit},
      {"loss", &Reader::readLoss},
      {"optimizer", &Reader::readOptimizer},
      {"parameter_groups", &Reader::readGroups},
      {"schedule", &Reader::readSchedule},
      {"accumulate", &Reader::readAccumulate},
      {"clip", &Reader::readClip},
      {"memory", &Reader::readMemory},
      {"tie", &Reader::readTies},
      {"entries", &Reader::readEntries}};
  for (auto &[key, method] : sections)
    if (root[key])
      (this->*method)(root[key]);
  read(root, "trainable", spec.trainable, "a list of globs");
  read(root, "frozen", spec.frozen, "a list of globs");
  read(root, "untie", spec.untie, "a list of names");
  read(root, "entries", spec.entries, "a list of entry names");
  if (root["precision"] && root["precision"]["compute"]) {
    YAML::Node compute = root["precision"]["compute"];
    oneOf(compute, text(compute), {"fp32"}, {"amp_bf16", "amp_fp16"},
          "precision.compute");
  }
}

/// Puts a command-line KEY=VALUE into the tree.
void override(YAML::Node root, const std::string &assignment,
              std::vector<std::string> &errors) {
  size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    errors.push_back("--set '" + assignment + "': expected KEY=VALUE");
    return;
  }
  std::string key = assignment.substr(0, equals);
  try {
    YAML::Node value = YAML::Load(assignment.substr(equals + 1));
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

SpecResult readSpec(const std::string &path, const std::vector<std::string> &overrides) {
  Reader reader(path);
  YAML::Node root(YAML::NodeType::Map);
  try {
    if (!path.empty()) {
      std::ifstream in(path);
      if (!in)
        return {
            std::nullopt, {"cannot read the spec '" + path + "': check the path"}, {}};
      std::stringstream bytes;
      bytes << in.rdbuf();
      reader.spec.text = bytes.str();
      root = YAML::Load(reader.spec.text);
      if (root.IsNull())
        root = YAML::Node(YAML::NodeType::Map);
      if (!root.IsMap())
        return {std::nullopt, {path + ":1:1: the spec is not a map of keys"}, {}};
    }
    for (const std::string &assignment : overrides) {
      override(root, assignment, reader.result.errors);
      reader.spec.text += "\n# --set " + assignment;
    }
    reader.checkKeys(root, "");
    reader.translate(root);
    if (reader.result.errors.empty())
      reader.fill(root);
  } catch (const YAML::Exception &e) {
    std::string where = path.empty() ? "spec" : path;
    if (!e.mark.is_null())
      where +=
          ":" + std::to_string(e.mark.line + 1) + ":" + std::to_string(e.mark.column + 1);
    reader.result.errors.push_back(where + ": " + e.msg);
  }
  if (reader.result.errors.empty())
    reader.result.spec = std::move(reader.spec);
  return std::move(reader.result);
}

} // namespace sluice
