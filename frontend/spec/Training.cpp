#include "frontend/spec/Reader.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr const char *kLossList = "cross_entropy, mse, l1, huber, kl, nll, sum, "
                                  "bce_with_logits, ctc, triplet, output";

/// Keys of `loss` that only some kinds read: a key without effect is an error.
const struct {
  const char *key;
  std::vector<std::string> kinds;
} kLossKeys[] = {
    {"blank", {"ctc"}},         {"target_size", {"ctc"}},
    {"input_lengths", {"ctc"}}, {"target_lengths", {"ctc"}},
    {"time_axis", {"ctc"}},     {"zero_infinity", {"ctc"}},
    {"log_probs", {"ctc"}},     {"anchor", {"triplet"}},
    {"positive", {"triplet"}},  {"negative", {"triplet"}},
    {"margin", {"triplet"}},    {"p", {"triplet"}},
    {"swap", {"triplet"}},      {"pos_weight", {"bce_with_logits"}},
    {"delta", {"huber"}},       {"label_smoothing", {"cross_entropy"}},
};

} // namespace

void Reader::readLoss(const YAML::Node &node) {
  LossSpec &loss = spec.loss;
  read(node, "kind", loss.kind, "text");
  if (loss.kind.empty())
    return error(node, "'loss' has no 'kind'; expected one of " + std::string(kLossList));
  oneOf(node["kind"], loss.kind,
        {"cross_entropy", "mse", "l1", "huber", "kl", "nll", "sum", "bce_with_logits",
         "ctc", "triplet", "output"},
        {}, "loss.kind");
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
  readCtc(node);
  readTriplet(node);
  checkLossKeys(node);
}

void Reader::readCtc(const YAML::Node &node) {
  LossSpec &loss = spec.loss;
  count(node, "blank", loss.blank, 0);
  count(node, "target_size", loss.targetSize, 1);
  count(node, "time_axis", loss.timeAxis, 0);
  read(node, "input_lengths", loss.inputLengths, "a name");
  read(node, "target_lengths", loss.targetLengths, "a name");
  read(node, "zero_infinity", loss.zeroInfinity, "true or false");
  read(node, "log_probs", loss.logProbs, "true or false");
  if (loss.kind == "ctc" && loss.targetSize == 0)
    error(node, "'loss: {kind: ctc}' needs 'target_size', the labels of the longest "
                "target");
  if (loss.timeAxis > 1)
    error(node["time_axis"], "'time_axis' is " + std::to_string(loss.timeAxis) +
                                 ", expected 1 (samples, frames, classes) or 0 (frames, "
                                 "samples, classes)");
}

void Reader::readTriplet(const YAML::Node &node) {
  LossSpec &loss = spec.loss;
  read(node, "anchor", loss.anchor, "a name");
  read(node, "positive", loss.positive, "a name");
  read(node, "negative", loss.negative, "a name");
  number(node, "margin", loss.margin, 0, 1e30);
  count(node, "p", loss.p, 1);
  read(node, "swap", loss.swap, "true or false");
  if (loss.kind == "triplet" &&
      (loss.anchor.empty() || loss.positive.empty() || loss.negative.empty()))
    error(node, "'loss: {kind: triplet}' needs 'anchor', 'positive' and 'negative', "
                "outputs of the model");
  if (loss.p > 2)
    error(node["p"], "'p' is " + std::to_string(loss.p) + ", expected 1 or 2");
}

void Reader::checkLossKeys(const YAML::Node &node) {
  for (const auto &[key, kinds] : kLossKeys)
    if (node[key] && std::find(kinds.begin(), kinds.end(), spec.loss.kind) == kinds.end())
      error(node[key], "'loss." + std::string(key) + "' has no effect on " +
                           spec.loss.kind + "; remove it");
}

/// One rule, or a list of them.
void Reader::readLora(const YAML::Node &node) {
  if (node.IsMap())
    return readLoraRule(node);
  if (!node.IsSequence())
    return error(node, "'lora' is '" + text(node) +
                           "', expected a rule such as {match: "
                           "\"*.attn.*\", rank: 8, alpha: 16}, or a list of rules");
  for (const YAML::Node &rule : node)
    if (rule.IsMap())
      readLoraRule(rule);
}

void Reader::readLoraRule(const YAML::Node &node) {
  LoraRule rule;
  read(node, "match", rule.match, "a glob");
  if (rule.match.empty())
    error(node, "a rule of 'lora' has no 'match'");
  count(node, "rank", rule.rank, 1);
  rule.alpha = static_cast<double>(rule.rank);
  number(node, "alpha", rule.alpha, 0, 1e6);
  number(node, "dropout", rule.dropout, 0, 0.999);
  spec.lora.push_back(rule);
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
    return error(value, "'accumulate' is " + std::to_string(spec.accumulate) +
                            ", expected at least 1");
  if (!node.IsMap())
    return;
  count(node, "as_ranks", spec.asRanks, 1);
  if (spec.asRanks >= 1 && spec.accumulate % spec.asRanks != 0)
    error(node["as_ranks"], "'accumulate.as_ranks' is " + std::to_string(spec.asRanks) +
                                ", expected a divisor of 'count', " +
                                std::to_string(spec.accumulate));
}

} // namespace sluice
