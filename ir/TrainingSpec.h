#pragma once
// What the model does not say: the training spec, as plain structs with the defaults of
// docs/spec.md. frontend/SpecReader fills it from YAML; passes read it.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sluice {

struct LossSpec {
  std::string kind;   // cross_entropy, mse, l1, huber, kl, nll, sum, bce_with_logits,
                      // ctc, triplet, output; empty: none given
  std::string logits; // name of a model output (predictions, for mse and l1)
  std::string labels = "labels"; // name of the new input (targets)
  std::string name;              // kind output: the model's scalar loss
  int64_t ignoreIndex = -100;
  std::vector<double> classWeights;
  double labelSmoothing = 0;
  double posWeight = 1;
  double delta = 1;                 // huber
  std::optional<int64_t> classAxis; // dimension of logits that counts classes; default:
                                    // last up to rank 3, else 1
  // ctc: labels are padded to targetSize; names of more inputs, where lengths differ.
  std::string inputLengths, targetLengths;
  int64_t blank = 0, targetSize = 0;
  int64_t timeAxis = 1; // of logits: 1 [N, T, C] or 0 [T, N, C]
  bool zeroInfinity = false;
  bool logProbs = false; // the output is a logarithm of probabilities already
  // triplet: three model outputs, rows of which are compared.
  std::string anchor, positive, negative;
  double margin = 1;
  int64_t p = 2; // of the distance's norm: 1 or 2
  bool swap = false;
};

/// Hyper-parameters of all kinds; each kind reads its own. Names are PyTorch's.
struct OptimizerSpec {
  std::string kind = "adamw"; // kOptimizerKinds
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weightDecay = 0.01;
  bool epsBeforeCorrection = false, amsgrad = false; // adam, adamw
  double momentum = 0, dampening = 0;                // sgd, rmsprop, muon
  bool nesterov = false;                             // sgd, muon
  double momentumDecay = 4e-3;                       // nadam
  bool decoupledWeightDecay = false;                 // nadam, radam
  double lrDecay = 0, initialAccumulator = 0;        // adagrad
  double alpha = 0.99;                               // rmsprop
  bool centered = false;                             // rmsprop
  double beta2Decay = -0.8, eps2 = 1e-3, d = 1;      // adafactor
  int64_t nsSteps = 5;                               // muon
  bool matchRmsAdamw = false;                        // muon

  bool operator==(const OptimizerSpec &) const = default;
};

inline constexpr const char *kOptimizerKinds[] = {
    "sgd",     "adam", "adamw", "nadam",     "radam", "adagrad",
    "rmsprop", "lamb", "lion",  "adafactor", "muon"};

/// What a kind starts from: PyTorch's defaults; LAMB's are those of NVIDIA's FusedLAMB,
/// Lion's its paper's.
inline OptimizerSpec optimizerDefaults(const std::string &kind) {
  OptimizerSpec o;
  o.kind = kind;
  if (kind != "adamw" && kind != "lamb")
    o.weightDecay = 0;
  if (kind == "sgd" || kind == "adagrad" || kind == "rmsprop" || kind == "adafactor")
    o.lr = 1e-2;
  if (kind == "nadam")
    o.lr = 2e-3;
  if (kind == "adagrad")
    o.eps = 1e-10;
  if (kind == "lamb")
    o.eps = 1e-6;
  if (kind == "lion")
    o.lr = 1e-4, o.beta2 = 0.99;
  if (kind == "adafactor")
    o.eps = 0x1p-23;
  if (kind == "muon")
    o.weightDecay = 0.1, o.momentum = 0.95, o.nesterov = true;
  return o;
}

/// Overrides for parameters whose name matches a glob; later groups win.
struct ParameterGroupSpec {
  std::string match;
  bool frozen = false;
  std::optional<std::string>
      kind; // of the optimizer: starts from the defaults of that kind
  OptimizerSpec options;
  std::set<std::string> keys; // of `optimizer` that are given, and stand in `options`
};

/// Low-rank adapters (Hu et al., 2021) beside the weights that match; the weights do not
/// train.
struct LoraRule {
  std::string match;
  int64_t rank = 8;
  double alpha = 8; // the product is scaled by alpha / rank
  double dropout = 0;
};

struct ScheduleSpec {
  std::string kind = "constant"; // linear, cosine, wsd, one_cycle, step, table
  int64_t warmupSteps = 0, totalSteps = 0;
  double lrScale = 1, warmupScale = 1;
  double minRatio = 0;          // linear, cosine, wsd
  int64_t decaySteps = 0;       // wsd
  std::string decay = "linear"; // wsd: linear, cosine, 1-sqrt
  int64_t stepSize = 0;         // step; 0: at `points`
  double gamma = 0.1;           // step
  double pctStart = 0.3, divFactor = 25, finalDivFactor = 1e4; // one_cycle
  std::vector<int64_t> points; // step (its milestones), table
  std::vector<double> factors; // table: one per point
};

/// Values that hold from a number of updates on.
struct ChangeSpec {
  int64_t at = 0;
  std::string group;                                  // empty: all that have them
  std::vector<std::pair<std::string, double>> values; // by the runtime's names; "lr",
                                                      // "frozen", "clip_max" too
};

/// What bounds gradients; formulas in docs/gradient-health.md.
struct ClipSpec {
  std::string kind = "none"; // global_norm, group_norm, agc, zclip
  double max = 0;            // norm; zclip: 0 for none
  bool isShared = true;      // group_norm: a group has max * sqrt(its share of elements)
  double ratio = 0.01, eps = 1e-3; // agc: of a unit's norm, which counts as `eps` or more
  std::vector<std::string> exclude = {}; // agc: globs of parameters
  double z = 2.5;                        // zclip: of the norm, from where it is clipped
  double alpha = 0.97;                   // zclip: of the averages of the norm
  int64_t warmup = 25;                   // zclip: updates before the first is clipped
  bool isOn() const { return kind != "none"; }
};

/// What is done about losses and gradients that jump.
struct SpikeSpec {
  bool cutsRates = false;    // where the loss fluctuates
  double fluctuation = 0.15; // deviation / mean of the losses of a window
  int64_t window = 64;       // updates
  double scale = 0.5;        // on every rate
  int64_t maxTimes = 3;
  int64_t cooldown = 256;        // updates
  std::string outliers = "keep"; // skip, rerun
  double factor = 10;            // of the mean norm, from where an update is an outlier
  double alpha = 0.97;           // of that mean
  int64_t warmup = 25;           // updates before the first can be one
  bool judgesNorms() const { return outliers != "keep"; }
};

/// The loss is multiplied by a power of two before the backward pass, so that small
/// gradients do not vanish in narrow formats.
struct LossScaleSpec {
  std::string kind = "none";                                 // dynamic, static, adaptive
  double init = 65536, backoff = 0.5, min = 1, max = 0x1p24; // powers of two
  int64_t growthInterval = 2000;                             // dynamic
  bool isOn() const { return kind != "none"; }
};

/// What `sluice probe` has measured of a parameter.
struct ProbedParameter {
  double importance = 0, importanceError = 0; // mean of the Hessian's diagonal
  int64_t blocks = 0;
  struct Increase {
    double sum = 0, error = 0; // of the loss; an infinite sum: the format overflows
  };
  std::map<std::string, Increase> increases; // by stored format
};
struct ProbedModel {
  std::string path, kind, modelHash, samples;
  std::map<std::string, ProbedParameter> parameters; // by the model's name
};

/// Which parameters are stored in fewer bits, within a number of bytes.
struct PolicySpec {
  std::string kind = "none"; // importance, random, size
  std::string from;          // a file of `sluice probe`; importance needs one
  /// Of parameters and their masters: bytes, or a share of what they take without it.
  std::optional<int64_t> budgetBytes;
  std::optional<double> budgetShare;
  std::vector<std::string> formats; // to choose from; empty: those of the file, or all
  double speed = 0.92; // share that recompute may leave, under a memory budget
  std::shared_ptr<const ProbedModel> probed; // the content of `from`, once it is read
  bool isOn() const { return kind != "none"; }
};

/// A rule of `precision.rules`: how what it names is stored. Later rules win.
struct StorageRule {
  std::string match;                // a glob of parameters; with `saved` of nodes
  std::string part;                 // instead: an element of parameters' names
  bool isKept = false;              // stays fp32
  std::vector<std::string> storage; // formats by depth, shallow first; empty: no matter
  std::string master = "none";      // of parameters in a format: none, fp32
  std::string saved;                // format of what the backward part reads
  std::string moments;              // as `optimizerState`; empty: no matter
  bool isDelayed = false; // scales from the largest magnitudes of updates before
};

/// What products compute in, and how weights that they read are kept.
struct PrecisionSpec {
  std::string compute = "fp32";  // amp_bf16, amp_fp16
  std::string master;            // under amp: split, fp32, none
  std::vector<std::string> keep; // globs of parameters or nodes: products that stay f32
  std::string optimizerState = "fp32"; // bf16, int8, fp8, a stored format
  std::vector<StorageRule> rules;      // those that keep are in `keep` too
  PolicySpec policy;
  bool isNarrow() const { return compute != "fp32"; }
  /// `master`, or what stands for it where it is empty: bf16 and 16 bits more are an f32,
  /// f16 and 16 bits more are none.
  std::string masterForm() const {
    return !master.empty() || !isNarrow() ? master
           : compute == "amp_bf16"        ? "split"
                                          : "fp32";
  }
};

struct InitRule {
  std::string match = "*";
  std::string from = "model"; // zeros, ones, kaiming[_normal], xavier[_normal], normal,
                              // trunc_normal, uniform, orthogonal
  double std = 0.02;          // normal, trunc_normal; uniform: the bound
  double bound = 2;           // trunc_normal: largest magnitude, PyTorch's default
  std::optional<double> gain; // kaiming (sqrt 2), xavier and orthogonal (1)
  bool fanOut = false;        // kaiming: by the numbers that flow out
};

struct TieSpec {
  std::string first, second;
  bool transpose = false;
  bool copies = false; // slices of `first` along dimension 0 are one parameter
};

/// Shapes that the entries are compiled for.
struct ShapeBucket {
  std::string name; // what sets it apart from the others: "T=64"
  std::map<std::string, std::vector<int64_t>> shapes; // by input name
  std::map<std::string, int64_t> dimensions;          // by symbolic dimension name
};

/// When a group of parameters is updated.
struct UpdateMode {
  std::string kind = "sync"; // overlap, interleave, defer
  int64_t every = 1;         // interleave: at every so many steps, by what they average
  int64_t delay = 0;         // defer: by the gradient of so many steps before

  bool operator==(const UpdateMode &) const = default;
};

/// Parameters whose names `match` are updated together.
struct UpdateGroupRule {
  std::string name, match;
  std::optional<UpdateMode> mode; // else that of all
};

/// What makes up for weights having moved since a gradient was computed.
struct CompensationSpec {
  std::string kind = "none"; // dc_asgd, momentum
  double lambda = 2;         // dc_asgd
  bool adaptive = true;      // dc_asgd: divided by the root of the mean squared gradient
  double decay = 0.95;       // of that mean
  std::string versions = "stored"; // dc_asgd: the old weights; reconstructed

  bool isOn() const { return kind != "none"; }
};

struct UpdateSpec {
  bool byTopology = false;
  int64_t groupSize = 8; // blocks of a group, by topology, unless `groups` is given
  int64_t groups = 0;    // their number, by topology
  std::vector<UpdateGroupRule> rules;
  UpdateMode mode;
  bool safeLr = true; // deferred groups: lr by the rule of passes/UpdateModes.h
  CompensationSpec compensation;
  /// When gradients that wait are applied, beside on request.
  bool flushesBeforeEval = true, flushesBeforeSave = true, flushesAtEnd = true;

  bool hasGroups() const { return byTopology || !rules.empty(); }
  /// The largest of all groups.
  int64_t every() const {
    int64_t most = mode.every;
    for (const UpdateGroupRule &rule : rules)
      most = rule.mode ? std::max(most, rule.mode->every) : most;
    return most;
  }
  int64_t delay() const {
    int64_t most = mode.delay;
    for (const UpdateGroupRule &rule : rules)
      most = rule.mode ? std::max(most, rule.mode->delay) : most;
    return most;
  }
  /// Some gradients outlive the step that has computed them.
  bool isStaggered() const { return every() > 1 || delay() > 0; }
};

/// What holds parameters near those of the tasks before (`continual.ewc`,
/// `continual.si`).
struct PenaltySpec {
  std::string kind = "none"; // ewc, si
  /// ewc: the loss gains lambda / 2 * sum F (w - anchor)^2; si: lambda is twice `c`.
  double lambda = 0;
  bool coupled = false;         // part of the gradient that clip and optimizer see
  std::string labels = "true";  // of the Fisher: true, sampled, all
  int64_t samples = 1024;       // that it is the mean of; at most those of the data
  std::string storage = "bf16"; // of importances: fp32, fp16, int8
  std::optional<double> gamma;  // one anchor; importances decay by it
  int64_t tasks = 1;            // anchors, without gamma
  double refresh = 0; // share of an epoch after which it consolidates; 0: at tasks' ends
  double xi = 0.1;    // si
  bool isOn() const { return kind != "none"; }
};

/// Samples of tasks before in every micro-batch (`continual.replay`).
struct ReplaySpec {
  bool isOn = false;
  double ratio = 0.2;                   // of a micro-batch
  int64_t capacityBytes = 64 << 20;     // of the host's memory
  std::string policy = "reservoir";     // ring, balanced, prioritized
  double alpha = 0.7, importance = 0.5; // prioritized: runtime/replay/ReplayBuffer.h
  int64_t minPerClass = 50;
  /// DER++: the squared distance to the logits of then, and the loss of other draws, have
  /// these weights.
  std::optional<double> logitsWeight, labelsWeight;
  bool isWeighted() const { return isOn && (policy == "prioritized" || hasLogits()); }
  bool hasLogits() const { return isOn && logitsWeight; }
};

/// Weights of single tasks (`continual.masks`).
struct MaskSpec {
  std::string kind = "none";      // packnet, supermask
  std::vector<std::string> tasks; // names, in the order in which they are learned
  double share = 0.5;    // packnet: of what is free, that a task keeps when it is pruned
  double retrain = 0.25; // packnet: of a task's updates, that come behind the pruning
  bool isOn() const { return kind != "none"; }
};

struct TrainingSpec {
  std::map<std::string, std::vector<int64_t>> shapes; // by input name
  std::map<std::string, int64_t> dimensions;          // by symbolic dimension name
  /// Where the spec lists several; `shapes` and `dimensions` are then those of the first.
  std::vector<ShapeBucket> buckets;
  std::map<std::string, double> pad; // by input name: fills up what is too small
  std::map<std::string, std::vector<double>> values; // inputs fixed to a value
  int threads = 0;                                   // 0: all cores
  uint64_t seed = 0;
  std::vector<InitRule> init;
  LossSpec loss;
  std::vector<std::string> trainable = {"*"}, frozen;
  std::vector<TieSpec> tie;
  std::vector<std::string> untie;
  std::vector<std::string> promote; // globs: weights inside Constant nodes to train
  OptimizerSpec optimizer;
  std::vector<ParameterGroupSpec> parameterGroups;
  ScheduleSpec schedule;
  int64_t accumulate = 1; // micro-batches per update
  int64_t asRanks = 1;    // summed as by so many ranks; divides `accumulate`
  int64_t ranks = 1;      // data-parallel ones that share an update
  int64_t zero = 0;       // 1: they share out optimizer state, 2: gradients too
  std::optional<int64_t>
      bucketBytes;                 // of a message of ranks; none: from the link's rates
  double windowMs = 0;             // predicted time in which gradients become one message
  double timeoutSeconds = 60;      // what a rank waits for the others
  std::vector<ChangeSpec> changes; // by rising `at`
  UpdateSpec update;
  ClipSpec clip;
  SpikeSpec spikes;
  bool gradientNorms = false; // norms are outputs, though nothing clips by them
  PenaltySpec penalty;
  MaskSpec masks;
  ReplaySpec replay;
  PrecisionSpec precision;
  LossScaleSpec lossScale;
  int64_t logitsBytes = 16 << 20; // that a loss takes at a time; no key sets it
  std::vector<LoraRule> lora;
  std::optional<int64_t> budgetBytes;
  /// none, every, sqrt, regions, auto; empty: auto under a budget, else none
  std::string recompute;
  int64_t recomputeEvery = 2;
  std::vector<std::vector<std::string>> recomputeRegions; // patterns of each
  std::vector<double> ladder;    // shares of the budget, falling; empty: one plan
  std::vector<std::string> keep; // globs: what is never run again
  std::string offload = "none";  // none; auto: under a budget; host: moments always
  double offloadThreshold = 1;   // share of the budget that offload brings a plan under
  std::vector<std::string> entries = {"step", "eval", "infer"};
  /// Forward and backward part are an entry of their own, @micro, and add to sums.
  bool addsGradients() const { return accumulate > 1 || update.every() > 1; }
  bool measuresNorms() const {
    return clip.isOn() || spikes.judgesNorms() || gradientNorms;
  }
  /// What needs the gradients of all groups before the first of them is updated, as the
  /// spec writes it; empty: nothing.
  std::string needsAllGradients() const {
    if (clip.kind == "global_norm" || clip.kind == "zclip")
      return "clip: {kind: " + clip.kind + "}";
    if (spikes.judgesNorms())
      return "spikes: {outliers: " + spikes.outliers + "}";
    return lossScale.isOn() ? "precision.loss_scale: {kind: " + lossScale.kind + "}" : "";
  }
  /// Recompute by a rule that does not look at the budget.
  bool hasFixedRecompute() const {
    return recompute == "sqrt" || recompute == "every" || recompute == "regions";
  }
  std::string text; // the file as read, for reports and the hash
};

} // namespace sluice
