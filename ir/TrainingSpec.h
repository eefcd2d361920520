#pragma once
// What the model does not say: the training spec, as plain structs with the defaults of docs/spec.md.
// frontend/SpecReader fills it from YAML; passes read it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct LossSpec {
  std::string kind;               // cross_entropy, mse, l1, nll, sum, bce_with_logits, output; empty: none given
  std::string logits;             // name of a model output (predictions, for mse and l1)
  std::string labels = "labels";  // name of the new input (targets)
  std::string name;               // kind output: the model's scalar loss
  int64_t ignoreIndex = -100;
  std::vector<double> classWeights;
  double labelSmoothing = 0;
  double posWeight = 1;
  std::optional<int64_t> classAxis; // dimension of logits that counts classes; default: last up to rank 3, else 1
};

struct OptimizerSpec {
  std::string kind = "adamw"; // sgd, adam, adamw
  double lr = 1e-3;           // sgd 1e-2
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weightDecay = 0.01;  // adam and sgd 0
  bool epsBeforeCorrection = false;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

/// Overrides for parameters whose name matches a glob; later groups win.
struct ParameterGroupSpec {
  std::string match;
  bool frozen = false;
  std::optional<double> lr, beta1, beta2, eps, weightDecay, momentum, dampening;
};

struct ScheduleSpec {
  std::string kind = "constant"; // linear, cosine
  int64_t warmupSteps = 0, totalSteps = 0;
  double lrScale = 1, warmupScale = 1;
};

struct ClipSpec {
  std::string kind = "none"; // global_norm
  double max = 0;
};

struct InitRule {
  std::string match = "*";
  std::string from = "model"; // model, zeros, kaiming, xavier, normal
  double std = 0.02;
};

struct TieSpec {
  std::string first, second;
  bool transpose = false;
};

struct TrainingSpec {
  std::map<std::string, std::vector<int64_t>> shapes; // by input name
  std::map<std::string, int64_t> dimensions;          // by symbolic dimension name
  std::map<std::string, std::vector<double>> values;  // inputs fixed to a value
  int threads = 0;                                    // 0: all cores
  uint64_t seed = 0;
  std::vector<InitRule> init;
  LossSpec loss;
  std::vector<std::string> trainable = {"*"}, frozen;
  std::vector<TieSpec> tie;
  std::vector<std::string> untie;
  OptimizerSpec optimizer;
  std::vector<ParameterGroupSpec> parameterGroups;
  ScheduleSpec schedule;
  int64_t accumulate = 1;
  ClipSpec clip;
  std::optional<int64_t> budgetBytes;
  std::vector<std::string> entries = {"step", "eval", "infer"};
  std::string text; // the file as read, for reports and the hash
};

} // namespace sluice
