#include "frontend/SpecKeys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace sluice {
namespace {

constexpr bool kReady = true, kLater = false;
using K = KeyKind;

const SpecKey kKeys[] = {
    {"shapes", K::AnyMaps, kReady,
     "shape per input, or size per symbolic dimension: the micro-batch of one rank; a "
     "list of such maps compiles every entry for each of them"},
    {"pad", K::AnyMap, kReady,
     "value per input that fills up what is smaller than its shape, such as a mask's 0; "
     "labels are filled up with loss.ignore_index"},
    {"values", K::AnyMap, kReady,
     "elements of inputs that are fixed (a sampling rate, a condition, a shape)"},
    {"threads", K::Integer, kReady,
     "workers of the plan; default all cores; any number gives the same bits"},
    {"seed", K::Integer, kReady, "key of all random numbers; default 0"},
    {"init", K::Map, kReady, "initial values of the parameters"},
    {"init.from", K::String, kReady,
     "model, zeros, ones, kaiming, kaiming_normal, xavier, xavier_normal, orthogonal"},
    {"init.normal", K::Number, kReady,
     "normal distribution with this standard deviation"},
    {"init.trunc_normal", K::Number, kReady, "the same, drawn again beyond bound"},
    {"init.bound", K::Number, kReady, "trunc_normal: default 2, as PyTorch's"},
    {"init.uniform", K::Number, kReady, "uniform in plus or minus this number"},
    {"init.gain", K::Any, kReady,
     "kaiming, xavier, orthogonal: a number, or linear, sigmoid, tanh, relu, leaky_relu, "
     "selu; default relu for kaiming, else 1"},
    {"init.mode", K::String, kReady, "kaiming: fan_in or fan_out; default fan_in"},
    {"init.rules", K::List, kReady, "per pattern; later rules win"},
    {"init.rules[].match", K::String, kReady, "glob over parameter names"},
    {"init.rules[].from", K::String, kReady,
     "model, zeros, ones, kaiming, kaiming_normal, xavier, xavier_normal, orthogonal"},
    {"init.rules[].normal", K::Number, kReady,
     "normal distribution with this standard deviation"},
    {"init.rules[].trunc_normal", K::Number, kReady,
     "the same, drawn again beyond bound"},
    {"init.rules[].bound", K::Number, kReady, "trunc_normal: default 2, as PyTorch's"},
    {"init.rules[].uniform", K::Number, kReady, "uniform in plus or minus this number"},
    {"init.rules[].gain", K::Any, kReady,
     "kaiming, xavier, orthogonal: a number, or linear, sigmoid, tanh, relu, leaky_relu, "
     "selu; default relu for kaiming, else 1"},
    {"init.rules[].mode", K::String, kReady,
     "kaiming: fan_in or fan_out; default fan_in"},
    {"loss", K::Map, kReady, "the loss"},
    {"loss.kind", K::String, kReady,
     "cross_entropy, mse, l1, huber, kl, nll, sum, bce_with_logits, ctc, triplet, "
     "output"},
    {"loss.logits", K::String, kReady, "model output the loss is taken of"},
    {"loss.labels", K::String, kReady,
     "name of the labels or targets input; default labels"},
    {"loss.name", K::String, kReady, "kind output: the model's scalar loss"},
    {"loss.ignore_index", K::Integer, kReady,
     "label that counts for nothing; default -100"},
    {"loss.class_axis", K::Integer, kReady,
     "dimension of the logits that counts classes; default the last up to rank 3, else "
     "1"},
    {"loss.class_weights", K::List, kReady, "one weight per class"},
    {"loss.label_smoothing", K::Number, kReady, "default 0"},
    {"loss.pos_weight", K::Number, kReady,
     "bce_with_logits: weight of the positive class; default 1"},
    {"loss.delta", K::Number, kReady, "huber: where it turns linear; default 1"},
    {"loss.blank", K::Integer, kReady, "ctc: the class of no label; default 0"},
    {"loss.target_size", K::Integer, kReady,
     "ctc: labels of the longest target; shorter ones are padded with ignore_index"},
    {"loss.input_lengths", K::String, kReady,
     "ctc: name of a new input, the frames of each sample; default all"},
    {"loss.target_lengths", K::String, kReady,
     "ctc: name of a new input, the labels of each sample; default up to the padding"},
    {"loss.time_axis", K::Integer, kReady,
     "ctc: 1 (samples, frames, classes) or 0 (frames, samples, classes); default 1"},
    {"loss.zero_infinity", K::Boolean, kReady,
     "ctc: samples without an alignment count as 0; default false"},
    {"loss.log_probs", K::Boolean, kReady,
     "ctc: the output has been through log_softmax; default false"},
    {"loss.anchor", K::String, kReady, "triplet: model output"},
    {"loss.positive", K::String, kReady, "triplet: model output like the anchor"},
    {"loss.negative", K::String, kReady, "triplet: model output unlike the anchor"},
    {"loss.margin", K::Number, kReady, "triplet: default 1"},
    {"loss.p", K::Integer, kReady, "triplet: the distance's norm, 1 or 2; default 2"},
    {"loss.swap", K::Boolean, kReady,
     "triplet: the distance of positive and negative too; default false"},
    {"trainable", K::List, kReady, "globs over parameter names; default all"},
    {"frozen", K::List, kReady, "globs removed from trainable"},
    {"tie", K::List, kReady,
     "pairs of parameters kept equal: [a, b] or [a, \"b@transpose\"]; [a, \"a@copies\"]: "
     "the "
     "slices of a along its first dimension"},
    {"untie", K::List, kReady, "names of tied parameters to train apart"},
    {"promote", K::List, kReady,
     "globs over results of Constant nodes, and over inputs, that are weights: they "
     "become "
     "parameters"},
    {"optimizer", K::Map, kReady, "the optimizer and its hyper-parameters"},
    {"optimizer.kind", K::String, kReady,
     "sgd, adam, adamw, nadam, radam, adagrad, rmsprop, lamb, lion, adafactor, muon; "
     "default adamw"},
    {"optimizer.lr", K::Number, kReady,
     "default 1e-3; sgd, adagrad, rmsprop, adafactor 1e-2; nadam 2e-3; lion 1e-4"},
    {"optimizer.betas", K::List, kReady, "default [0.9, 0.999]; lion [0.9, 0.99]"},
    {"optimizer.eps", K::Number, kReady,
     "default 1e-8; adagrad 1e-10, lamb 1e-6, adafactor 2^-23"},
    {"optimizer.weight_decay", K::Number, kReady,
     "default 0.01 for adamw and lamb, 0.1 for muon, else 0"},
    {"optimizer.eps_mode", K::String, kReady,
     "after_correction (PyTorch) or before_correction (ONNX)"},
    {"optimizer.momentum", K::Number, kReady, "sgd, rmsprop: default 0; muon: 0.95"},
    {"optimizer.dampening", K::Number, kReady, "sgd; default 0"},
    {"optimizer.nesterov", K::Boolean, kReady, "sgd: default false; muon: true"},
    {"optimizer.amsgrad", K::Boolean, kReady,
     "adam, adamw: the largest second moment so far; default false"},
    {"optimizer.momentum_decay", K::Number, kReady, "nadam; default 0.004"},
    {"optimizer.decoupled_weight_decay", K::Boolean, kReady,
     "nadam, radam: decay as adamw's; default false"},
    {"optimizer.lr_decay", K::Number, kReady, "adagrad; default 0"},
    {"optimizer.initial_accumulator_value", K::Number, kReady, "adagrad; default 0"},
    {"optimizer.alpha", K::Number, kReady,
     "rmsprop: the squares' decay rate; default 0.99"},
    {"optimizer.centered", K::Boolean, kReady, "rmsprop; default false"},
    {"optimizer.beta2_decay", K::Number, kReady, "adafactor; default -0.8"},
    {"optimizer.eps2", K::Number, kReady,
     "adafactor: least size of a tensor, for its rate; default 1e-3"},
    {"optimizer.d", K::Number, kReady, "adafactor: clipping threshold; default 1"},
    {"optimizer.ns_steps", K::Integer, kReady, "muon: Newton-Schulz steps; default 5"},
    {"optimizer.adjust_lr_fn", K::String, kReady,
     "muon: original or match_rms_adamw; default original"},
    {"parameter_groups", K::List, kReady, "overrides per pattern; later ones win"},
    {"parameter_groups[].match", K::String, kReady, "glob over parameter names"},
    {"parameter_groups[].frozen", K::Boolean, kReady, "no gradient, moment or update"},
    {"parameter_groups[].kind", K::String, kReady,
     "another optimizer, from its own defaults"},
    {"parameter_groups[].lr", K::Number, kReady, "learning rate"},
    {"parameter_groups[].betas", K::List, kReady, "as optimizer.betas"},
    {"parameter_groups[].eps", K::Number, kReady, "as optimizer.eps"},
    {"parameter_groups[].eps_mode", K::String, kReady, "as optimizer.eps_mode"},
    {"parameter_groups[].weight_decay", K::Number, kReady, "weight decay"},
    {"parameter_groups[].momentum", K::Number, kReady, "as optimizer.momentum"},
    {"parameter_groups[].dampening", K::Number, kReady, "as optimizer.dampening"},
    {"parameter_groups[].nesterov", K::Boolean, kReady, "as optimizer.nesterov"},
    {"parameter_groups[].amsgrad", K::Boolean, kReady, "as optimizer.amsgrad"},
    {"parameter_groups[].momentum_decay", K::Number, kReady,
     "as optimizer.momentum_decay"},
    {"parameter_groups[].decoupled_weight_decay", K::Boolean, kReady,
     "as optimizer.decoupled_weight_decay"},
    {"parameter_groups[].lr_decay", K::Number, kReady, "as optimizer.lr_decay"},
    {"parameter_groups[].initial_accumulator_value", K::Number, kReady,
     "as optimizer.initial_accumulator_value"},
    {"parameter_groups[].alpha", K::Number, kReady, "as optimizer.alpha"},
    {"parameter_groups[].centered", K::Boolean, kReady, "as optimizer.centered"},
    {"parameter_groups[].beta2_decay", K::Number, kReady, "as optimizer.beta2_decay"},
    {"parameter_groups[].eps2", K::Number, kReady, "as optimizer.eps2"},
    {"parameter_groups[].d", K::Number, kReady, "as optimizer.d"},
    {"parameter_groups[].ns_steps", K::Integer, kReady, "as optimizer.ns_steps"},
    {"parameter_groups[].adjust_lr_fn", K::String, kReady, "as optimizer.adjust_lr_fn"},
    {"parameter_groups[].update", K::Any, kLater, "update mode of the group"},
    {"schedule", K::Map, kReady, "learning rate over updates"},
    {"schedule.kind", K::String, kReady,
     "constant, linear, cosine, wsd, one_cycle, step, table"},
    {"schedule.warmup_steps", K::Integer, kReady, "updates of linear warm-up; default 0"},
    {"schedule.total_steps", K::Integer, kReady, "updates until the schedule ends"},
    {"schedule.min_ratio", K::Number, kReady,
     "linear, cosine, wsd: the factor they end at; default 0"},
    {"schedule.decay_steps", K::Integer, kReady, "wsd: updates of the decay at the end"},
    {"schedule.decay", K::String, kReady, "wsd: linear, cosine, 1-sqrt; default linear"},
    {"schedule.step_size", K::Integer, kReady, "step: updates between steps"},
    {"schedule.milestones", K::List, kReady, "step: updates at which it steps"},
    {"schedule.gamma", K::Number, kReady, "step: factor of each; default 0.1"},
    {"schedule.pct_start", K::Number, kReady, "one_cycle: share that rises; default 0.3"},
    {"schedule.div_factor", K::Number, kReady, "one_cycle: lr / first rate; default 25"},
    {"schedule.final_div_factor", K::Number, kReady,
     "one_cycle: first rate / last rate; default 1e4"},
    {"schedule.table", K::List, kReady,
     "table: pairs [update, factor of lr], linear between them"},
    {"schedule.lr_scale", K::Number, kReady, "factor on every rate; default 1"},
    {"schedule.warmup_scale", K::Number, kReady, "factor on warmup_steps; default 1"},
    {"accumulate", K::Any, kReady, "micro-batches per update; default 1"},
    {"accumulate.count", K::Integer, kReady, "micro-batches per update"},
    {"accumulate.as_ranks", K::Integer, kReady, "sum in the order of this many ranks"},
    {"changes", K::List, kReady,
     "values of hyper-parameters that hold from a number of updates on"},
    {"changes[].at", K::Integer, kReady, "updates done before; 0 is from the start"},
    {"changes[].group", K::String, kReady,
     "name of a group, as the report says it; default all that have the hyper-parameter"},
    {"changes[].lr", K::Number, kReady, "what the schedule scales from then on"},
    {"changes[].betas", K::List, kReady, "as optimizer.betas"},
    {"changes[].eps", K::Number, kReady, "as optimizer.eps"},
    {"changes[].weight_decay", K::Number, kReady, "as optimizer.weight_decay"},
    {"changes[].momentum", K::Number, kReady, "as optimizer.momentum, which is not 0"},
    {"changes[].dampening", K::Number, kReady, "as optimizer.dampening"},
    {"changes[].momentum_decay", K::Number, kReady, "as optimizer.momentum_decay"},
    {"changes[].lr_decay", K::Number, kReady, "as optimizer.lr_decay"},
    {"changes[].alpha", K::Number, kReady, "as optimizer.alpha"},
    {"changes[].beta2_decay", K::Number, kReady, "as optimizer.beta2_decay"},
    {"changes[].eps2", K::Number, kReady, "as optimizer.eps2"},
    {"changes[].d", K::Number, kReady, "as optimizer.d"},
    {"changes[].clip_max", K::Number, kReady, "as clip.max"},
    {"changes[].frozen", K::Boolean, kReady, "the group stops, or trains again"},
    {"clip", K::Map, kReady, "gradient clipping"},
    {"clip.kind", K::String, kReady, "none, global_norm, group_norm, agc, zclip"},
    {"clip.max", K::Number, kReady,
     "largest norm of the mean gradient; zclip: default none"},
    {"clip.share", K::String, kReady,
     "group_norm: elements, a group has max * sqrt(its share of them); none, each has "
     "max; default elements"},
    {"clip.ratio", K::Number, kReady,
     "agc: of a unit's gradient to its weights; default 0.01"},
    {"clip.eps", K::Number, kReady, "agc: least norm of weights; default 1e-3"},
    {"clip.exclude", K::List, kReady, "agc: globs of parameters, such as the head's"},
    {"clip.z", K::Number, kReady,
     "zclip: deviations above the mean from where a norm is clipped; default 2.5"},
    {"clip.alpha", K::Number, kReady, "zclip: decay of the averages; default 0.97"},
    {"clip.warmup", K::Integer, kReady,
     "zclip: updates before the first is clipped; default 25"},
    {"gradient_norms", K::Boolean, kReady,
     "norms are measured though nothing clips by them; default false"},
    {"lora", K::Any, kReady,
     "low-rank adapters beside weights, which no longer train; one rule or a list"},
    {"lora.match", K::String, kReady, "glob over parameter names"},
    {"lora.rank", K::Integer, kReady, "default 8"},
    {"lora.alpha", K::Number, kReady,
     "the product is scaled by alpha / rank; default rank"},
    {"lora.dropout", K::Number, kReady, "of the adapter's input; default 0"},
    {"lora[].match", K::String, kReady, "glob over parameter names"},
    {"lora[].rank", K::Integer, kReady, "default 8"},
    {"lora[].alpha", K::Number, kReady,
     "the product is scaled by alpha / rank; default rank"},
    {"lora[].dropout", K::Number, kReady, "of the adapter's input; default 0"},
    {"memory", K::Map, kReady, "memory decisions"},
    {"memory.budget", K::Any, kReady, "bytes, or a size such as 2GiB"},
    {"memory.recompute", K::Any, kReady,
     "auto under a budget, else none; sqrt, {every: N}, regions"},
    {"memory.recompute.every", K::Integer, kReady, "stretches between kept values"},
    {"memory.offload", K::String, kReady,
     "none, auto under a budget, host: moments always lie in the host's memory"},
    {"memory.keep", K::List, kReady,
     "globs of nodes, or scopes, whose results are never recomputed"},
    {"memory.regions", K::List, kReady,
     "recomputed as units, all else is kept; each a glob or scope of nodes, or a list"},
    {"memory.offload_threshold", K::Number, kReady,
     "share of the budget at which offload begins; default 1"},
    {"memory.ladder", K::List, kReady,
     "shares of the budget, or of what a plan that keeps everything needs, falling: one "
     "variant of the plan for each"},
    {"memory.order", K::String, kReady, "auto"},
    {"precision", K::Map, kReady, "formats"},
    {"precision.compute", K::String, kReady,
     "what products compute in: fp32, amp_bf16, amp_fp16; default fp32"},
    {"precision.loss_scale", K::Any, kReady,
     "none, dynamic, static or adaptive, or a map; default none"},
    {"precision.loss_scale.kind", K::String, kReady,
     "none, dynamic, static, adaptive; default dynamic"},
    {"precision.loss_scale.init", K::Number, kReady,
     "the first scale (static: the scale), a power of two; default 65536"},
    {"precision.loss_scale.growth_interval", K::Integer, kReady,
     "dynamic: updates in a row after which it is doubled; default 2000"},
    {"precision.loss_scale.backoff", K::Number, kReady,
     "factor after a gradient that is not finite, a power of two; default 0.5"},
    {"precision.loss_scale.min_scale", K::Number, kReady,
     "where a gradient that is not finite ends training; default 1"},
    {"precision.loss_scale.max_scale", K::Number, kReady,
     "it grows no further; default 16777216"},
    {"precision.master", K::String, kReady,
     "what completes 16-bit weights: split (under amp_bf16), fp32 (amp_fp16), none"},
    {"precision.accumulator", K::String, kReady,
     "fp32, or gradient: as the gradients, which are sums in f32; default fp32"},
    {"precision.optimizer_state", K::String, kReady,
     "format of the moments: fp32, int8, fp8 (with its range expanded), or one of "
     "rules[].storage; default fp32"},
    {"precision.policy", K::Any, kReady,
     "stored formats of parameters within a number of bytes; default none"},
    {"precision.policy.kind", K::String, kReady,
     "importance, by a file of sluice probe; random, size: to compare with; default "
     "importance"},
    {"precision.policy.from", K::String, kReady, "the file of sluice probe"},
    {"precision.policy.budget", K::Any, kReady,
     "of parameters with their masters: a size such as 64MiB, or a share such as 0.6x of "
     "what they take without it; under memory.budget none is needed"},
    {"precision.policy.formats", K::List, kReady,
     "to choose from; default: all that the file has"},
    {"precision.policy.speed", K::Number, kReady,
     "under memory.budget: share of the speed without a budget below which fewer bytes "
     "of parameters come before more recompute; default 0.92"},
    {"precision.rules", K::List, kReady,
     "formats and exceptions by name; later ones win, and all win over the policy"},
    {"precision.rules[].match", K::String, kReady, "a glob of parameters or nodes"},
    {"precision.rules[].part", K::String, kReady,
     "in place of match: parameters whose name has it between its dots or slashes"},
    {"precision.rules[].keep", K::String, kReady, "fp32: products that read or are it"},
    {"precision.rules[].storage", K::Any, kReady,
     "what parameters are stored in: bf16, fp16, e4m3 (fp8), e5m2, e4m3_1x128, "
     "e4m3_128x128, mxfp8, mxfp4, nvfp4; a list splits their blocks by depth, shallow "
     "first"},
    {"precision.rules[].master", K::String, kReady,
     "of stored parameters: none, updates round stochastically; fp32; default none"},
    {"precision.rules[].saved", K::String, kReady,
     "format of what the backward part reads of the nodes that match"},
    {"precision.rules[].moments", K::String, kReady,
     "as precision.optimizer_state, for the parameters that match"},
    {"precision.rules[].scaling", K::String, kReady,
     "of e4m3 and e5m2: current, by the values stored; delayed, by those of updates "
     "before; default current"},
    {"precision.phases", K::List, kLater, "formats by phase"},
    {"spikes", K::Map, kReady, "reaction to losses and gradients that jump"},
    {"spikes.fluctuation", K::Number, kReady,
     "deviation / mean of the loss in a window above which, in two windows in a row, "
     "rates are cut; 0: never; default 0.15"},
    {"spikes.window", K::Integer, kReady, "updates; default 64"},
    {"spikes.scale", K::Number, kReady, "factor on every rate; default 0.5"},
    {"spikes.max_times", K::Integer, kReady, "cuts at most; default 3"},
    {"spikes.cooldown", K::Integer, kReady,
     "updates after a cut without another; default 4 windows"},
    {"spikes.outliers", K::Any, kReady,
     "updates of an unusual gradient: keep, skip, rerun; or a map"},
    {"spikes.outliers.action", K::String, kReady, "keep, skip, rerun"},
    {"spikes.outliers.factor", K::Number, kReady,
     "of the mean norm, from where an update is one; default 10"},
    {"spikes.outliers.alpha", K::Number, kReady, "decay of that mean; default 0.97"},
    {"spikes.outliers.warmup", K::Integer, kReady,
     "updates before the first can be one; default 25"},
    {"update", K::Map, kReady, "parameters that are updated together, and when"},
    {"update.grouping", K::Any, kReady,
     "topology; {count: N} groups by topology; or a list of {name, match} of which each "
     "parameter matches one"},
    {"update.grouping.count", K::Integer, kReady, "groups by topology"},
    {"update.grouping[].name", K::String, kReady, "of a group; default its pattern"},
    {"update.grouping[].match", K::String, kReady, "a glob of its parameters"},
    {"update.group_size", K::Integer, kReady, "topology: blocks of a group; default 8"},
    {"update.grouping[].mode", K::Any, kReady, "as update.mode, of this group"},
    {"update.grouping[].mode.interleave", K::Integer, kReady, "as update.mode"},
    {"update.grouping[].mode.defer", K::Integer, kReady, "as update.mode"},
    {"update.mode", K::Any, kReady,
     "sync: every group at every step; overlap: so too, each reduced and updated as soon "
     "as its gradients are complete; {interleave: K}; {defer: D}; default sync"},
    {"update.mode.interleave", K::Integer, kReady,
     "each group in its turn at every K-th step, by the mean gradient of all samples "
     "since; 1 is sync"},
    {"update.mode.defer", K::Integer, kReady,
     "the gradient of a step is applied D steps later; 0 is sync"},
    {"update.safe_lr", K::Boolean, kReady,
     "deferred groups have lr * sin(pi / (4 D + 2)); default true"},
    {"update.compensation", K::Any, kReady,
     "of deferred groups: none, dc_asgd or momentum; default none"},
    {"update.compensation.kind", K::String, kReady,
     "dc_asgd: g + lambda * g * g * (weights - those it was computed with); momentum: "
     "gradients are computed with weights D steps ahead"},
    {"update.compensation.lambda", K::Number, kReady, "dc_asgd; default 2"},
    {"update.compensation.adaptive", K::Boolean, kReady,
     "dc_asgd: lambda by the root of a running mean of g * g; default true"},
    {"update.compensation.decay", K::Number, kReady,
     "dc_asgd: of that mean; default 0.95"},
    {"update.compensation.versions", K::String, kReady,
     "dc_asgd: old weights are stored, or reconstructed from the momentum (sgd, defer: "
     "1); default stored"},
    {"update.flush", K::List, kReady,
     "before what gradients that wait are applied: eval, save, stop; default all of "
     "them"},
    {"parallel", K::Map, kReady, "ranks and how the model is split"},
    {"parallel.data", K::Integer, kReady,
     "ranks that share an update, each with batches of its own; shapes are the "
     "micro-batch of one, accumulate counts those of one; default 1"},
    {"parallel.zero", K::Integer, kReady,
     "1: ranks share out moments, masters and updates; 2: summed gradients too; default "
     "0"},
    {"parallel.tensor", K::Integer, kReady, "1"},
    {"parallel.pipeline", K::Integer, kReady, "1"},
    {"parallel.micro_batches", K::Any, kLater, "of a pipeline"},
    {"parallel.schedule", K::String, kLater, "of a pipeline"},
    {"comm", K::Map, kReady, "what ranks tell each other"},
    {"comm.bucket", K::Any, kReady,
     "auto, or bytes from which gradients are sent as one message, such as 8MiB"},
    {"comm.window_ms", K::Number, kReady,
     "predicted time after which a message is sent; default 0, no limit"},
    {"comm.timeout_s", K::Number, kReady, "what a rank waits for the others; default 60"},
    {"comm.order", K::String, kReady, "fixed"},
    {"continual", K::Map, kReady, "learning on without forgetting"},
    {"continual.ewc", K::Map, kReady,
     "elastic weight consolidation: a penalty of lambda / 2 * F * (w - anchor)^2"},
    {"continual.ewc.lambda", K::Number, kReady,
     "of the mean squared gradient of single samples; needed"},
    {"continual.ewc.coupled", K::Boolean, kReady,
     "the penalty is part of the gradient that is clipped and preconditioned; default "
     "false: a step of its own beside the optimizer's"},
    {"continual.ewc.fisher", K::Map, kReady, "what importances are estimated from"},
    {"continual.ewc.fisher.labels", K::Any, kReady,
     "true: those of the data; sampled: drawn from the model; all: every class by its "
     "probability; default true"},
    {"continual.ewc.fisher.samples", K::Integer, kReady,
     "of the task's data, at most; default 1024"},
    {"continual.ewc.fisher.storage", K::String, kReady,
     "bf16, fp32, fp16 or int8 with scales of blocks; default bf16"},
    {"continual.ewc.online", K::Any, kReady,
     "one anchor for all tasks, with {gamma: G}; default one anchor per task"},
    {"continual.ewc.online.gamma", K::Number, kReady,
     "what is left of the Fisher so far when a new one is added; needed"},
    {"continual.ewc.tasks", K::Integer, kReady,
     "anchors that there is room for, without online; default 1"},
    {"continual.ewc.refresh", K::Number, kReady,
     "online: consolidate whenever this share of the data has been new; default 0, at "
     "the ends of tasks"},
    {"continual.si", K::Map, kReady,
     "synaptic intelligence: a penalty of c * Omega * (w - anchor)^2"},
    {"continual.si.c", K::Number, kReady, "its strength; needed"},
    {"continual.si.xi", K::Number, kReady,
     "added to the squared way of a weight; default 0.1"},
    {"continual.si.coupled", K::Boolean, kReady, "as continual.ewc.coupled"},
    {"continual.si.storage", K::String, kReady,
     "of Omega, as continual.ewc.fisher.storage"},
    {"continual.replay", K::Map, kReady, "samples of tasks before in every micro-batch"},
    {"continual.replay.ratio", K::Number, kReady, "of a micro-batch; default 0.2"},
    {"continual.replay.capacity", K::Any, kReady,
     "bytes of host memory for the samples kept; default 64MiB"},
    {"continual.replay.policy", K::String, kReady,
     "ring, reservoir, balanced (by class) or prioritized (by how much of a task was "
     "forgotten); default reservoir"},
    {"continual.replay.alpha", K::Number, kReady,
     "prioritized: the probability is forgetting to this power; default 0.7"},
    {"continual.replay.importance", K::Number, kReady,
     "prioritized: losses are weighted by (N p) to minus this power; default 0.5"},
    {"continual.replay.min_per_class", K::Integer, kReady,
     "balanced, prioritized: samples that a class keeps; default 50"},
    {"continual.replay.derpp", K::Map, kReady,
     "DER++: logits of then are kept too, and held"},
    {"continual.replay.derpp.alpha", K::Number, kReady,
     "weight of the squared distance to the logits of then; default 0.3"},
    {"continual.replay.derpp.beta", K::Number, kReady,
     "weight of the loss of replayed samples; default 0.5"},
    {"continual.masks", K::Map, kReady, "weights of single tasks inside one model"},
    {"continual.masks.kind", K::String, kReady,
     "packnet: each element belongs to the task that has kept it; supermask: weights "
     "stay as they are, tasks learn which of them count; needed"},
    {"continual.masks.tasks", K::List, kReady,
     "names of all tasks that there is room for, in the order they are learned; needed"},
    {"continual.masks.share", K::Number, kReady,
     "packnet: what a task keeps of the elements that are free, the largest; default "
     "0.5"},
    {"continual.masks.retrain", K::Number, kReady,
     "packnet: share of a task's updates behind its pruning; default 0.25"},
    {"controller", K::Any, kLater, "reaction to memory and forgetting"},
    {"optim", K::Map, kReady, "design-note spelling of update and precision.rules"},
    {"optim.macro_architecture", K::Boolean, kReady,
     "update: {grouping: topology, mode: overlap}"},
    {"optim.group_size", K::Integer, kReady, "update.group_size, by topology"},
    {"optim.precision_policy", K::AnyMap, kReady,
     "precision.rules: {text: fp16, image: [fp8, fp16]} has a rule per part"},
    {"training_params", K::Map, kReady, "design-note spelling"},
    {"training_params.batch_size", K::Integer, kReady, "the batch dimension of shapes"},
    {"training_params.optimizer", K::String, kReady, "such as \"AdamW(lr=5e-5)\""},
    {"training_params.precision", K::String, kReady, "precision.compute"},
    {"training_params.regularization", K::Map, kReady, "strengths of continual"},
    {"training_params.regularization.ewc_lambda", K::Number, kReady,
     "continual.ewc.lambda"},
    {"training_params.regularization.replay_ratio", K::Number, kReady,
     "continual.replay.ratio"},
    {"training_params.memory", K::Map, kReady, "recompute and offload of memory"},
    {"training_params.memory.checkpointing", K::Boolean, kReady, "memory.recompute"},
    {"training_params.memory.offload_threshold", K::Number, kReady,
     "memory.offload and memory.offload_threshold"},
    {"entries", K::List, kReady, "step, eval, infer; probe: gradients, for sluice probe"},
};

size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

/// "a.b[].c" -> "a.b[]": what stands before the last element.
std::string parentOf(const std::string &path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string lastOf(const std::string &path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

using nlohmann::ordered_json;

ordered_json schemaType(KeyKind kind) {
  switch (kind) {
  case K::AnyMaps:
    return ordered_json::array({"object", "array"});
  case K::Map:
  case K::AnyMap:
    return "object";
  case K::List:
    return "array";
  case K::Integer:
    return "integer";
  case K::Number:
    return "number";
  case K::String:
    return "string";
  case K::Boolean:
    return "boolean";
  case K::Any:
    return nullptr;
  }
  return nullptr;
}

ordered_json schemaOf(const std::string &path, KeyKind kind) {
  ordered_json node = ordered_json::object();
  if (ordered_json type = schemaType(kind); !type.is_null())
    node["type"] = type;
  ordered_json children = ordered_json::object(), elements = ordered_json::object();
  for (const SpecKey &key : kKeys) {
    std::string parent = parentOf(key.path);
    ordered_json *into = parent == path          ? &children
                         : parent == path + "[]" ? &elements
                                                 : nullptr;
    if (!into || !key.ready)
      continue;
    ordered_json child = schemaOf(key.path, key.kind);
    child["description"] = key.text;
    (*into)[lastOf(key.path)] = child;
  }
  if (!children.empty())
    node["properties"] = children;
  if (kind == K::Map)
    node["additionalProperties"] = false;
  if (!elements.empty())
    node["items"] = {
        {"type", "object"}, {"properties", elements}, {"additionalProperties", false}};
  return node;
}

} // namespace

std::span<const SpecKey> specKeys() { return kKeys; }

const SpecKey *findSpecKey(const std::string &path) {
  for (const SpecKey &key : kKeys)
    if (path == key.path)
      return &key;
  return nullptr;
}

std::string nearestSpecKey(const std::string &path) {
  std::string best;
  size_t bestDistance = 1 + std::max<size_t>(2, lastOf(path).size() / 3);
  for (const SpecKey &key : kKeys) {
    if (parentOf(key.path) != parentOf(path))
      continue;
    size_t distance = editDistance(lastOf(key.path), lastOf(path));
    if (distance < bestDistance) {
      bestDistance = distance;
      best = lastOf(key.path);
    }
  }
  return best;
}

std::string specSchema() {
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"title", "Sluice training spec"}};
  schema.update(schemaOf("", K::Map));
  return schema.dump(2) + "\n";
}

} // namespace sluice
