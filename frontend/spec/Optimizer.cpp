#include "frontend/spec/Reader.h"

#include <algorithm>

namespace sluice {

namespace {

/// Keys of `optimizer` that only some kinds read: a key without effect is an error.
const struct {
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

} // namespace

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
  readOptimizerKeys(node, "optimizer", optimizer);
  checkOptimizer(node, optimizer);
}

/// What `optimizer` and `parameter_groups` have in common.
void Reader::readOptimizerKeys(const YAML::Node &node, const std::string &path,
                               OptimizerSpec &optimizer) {
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
  std::string mode = "after_correction", adjust = "original";
  read(node, "eps_mode", mode, "text");
  if (node["eps_mode"] &&
      oneOf(node["eps_mode"], mode, {"after_correction", "before_correction"}, {},
            path + ".eps_mode"))
    optimizer.epsBeforeCorrection = mode == "before_correction";
  read(node, "adjust_lr_fn", adjust, "text");
  if (node["adjust_lr_fn"] &&
      oneOf(node["adjust_lr_fn"], adjust, {"original", "match_rms_adamw"}, {},
            path + ".adjust_lr_fn"))
    optimizer.matchRmsAdamw = adjust == "match_rms_adamw";
  if (optimizer.nsSteps > 100)
    error(node["ns_steps"], "'ns_steps' is " + std::to_string(optimizer.nsSteps) +
                                ", expected at most 100");
}

/// Keys that contradict each other.
void Reader::checkOptimizer(const YAML::Node &node, const OptimizerSpec &optimizer) {
  if (optimizer.kind == "sgd" && optimizer.nesterov &&
      (optimizer.momentum == 0 || optimizer.dampening != 0))
    error(node, "'nesterov' needs 'momentum' above 0 and 'dampening' 0");
  if (optimizer.kind == "radam" && optimizer.beta2 <= 0.6)
    error(node, "'radam' needs a second beta above 0.6, or no update is ever rectified");
}

void Reader::readGroups(const YAML::Node &node) {
  std::vector<std::string> kinds{spec.optimizer.kind};
  for (const YAML::Node &entry : node) {
    if (!entry.IsMap())
      continue;
    ParameterGroupSpec group;
    read(entry, "match", group.match, "a glob");
    if (group.match.empty())
      error(entry, "an element of 'parameter_groups' has no 'match'");
    read(entry, "frozen", group.frozen, "true or false");
    read(entry, "kind", group.kind, "text");
    if (group.kind && isOptimizer(entry["kind"], *group.kind, "parameter_groups[].kind"))
      kinds.push_back(*group.kind), group.options = optimizerDefaults(*group.kind);
    readOptimizerKeys(entry, "parameter_groups[]", group.options);
    if (group.kind)
      checkOptimizer(entry, group.options);
    readGroupKeys(entry, kinds, group);
    spec.parameterGroups.push_back(group);
  }
}

/// Which keys of an optimizer the group gives. One that neither its kind nor, without
/// one, any kind so far reads would be without effect.
void Reader::readGroupKeys(const YAML::Node &entry, const std::vector<std::string> &kinds,
                           ParameterGroupSpec &group) {
  std::vector<std::string> own =
      group.kind ? std::vector<std::string>{*group.kind} : kinds;
  for (const char *key : {"lr", "weight_decay"})
    if (entry[key])
      group.keys.insert(key);
  for (const auto &[key, readers] : kOptimizerKeys) {
    if (!entry[key])
      continue;
    group.keys.insert(key);
    bool isRead = std::any_of(own.begin(), own.end(), [&](const std::string &kind) {
      return std::find(readers.begin(), readers.end(), kind) != readers.end();
    });
    if (!isRead)
      error(entry[key], "'parameter_groups[]." + std::string(key) +
                            "' has no effect on " + own.back() + "; remove it");
  }
}

} // namespace sluice
