#include "tools/sluice/TrainingDifference.h"

#include <algorithm>
#include <tuple>

namespace sluice::cli {
namespace {

auto fields(const LossSpec &l) {
  return std::tie(l.kind, l.logits, l.labels, l.name, l.ignoreIndex, l.classWeights,
                  l.labelSmoothing, l.posWeight, l.delta, l.classAxis, l.inputLengths,
                  l.targetLengths, l.blank, l.targetSize, l.timeAxis, l.zeroInfinity,
                  l.logProbs, l.anchor, l.positive, l.negative, l.margin, l.p, l.swap);
}
auto fields(const ParameterGroupSpec &g) {
  return std::tie(g.match, g.frozen, g.kind, g.options, g.keys);
}
auto fields(const LoraRule &r) { return std::tie(r.match, r.rank, r.alpha, r.dropout); }
auto fields(const ScheduleSpec &s) {
  return std::tie(s.kind, s.warmupSteps, s.totalSteps, s.lrScale, s.warmupScale,
                  s.minRatio, s.decaySteps, s.decay, s.stepSize, s.gamma, s.pctStart,
                  s.divFactor, s.finalDivFactor, s.points, s.factors);
}
auto fields(const ChangeSpec &c) { return std::tie(c.at, c.group, c.values); }
auto fields(const ClipSpec &c) { return std::tie(c.kind, c.max); }
auto fields(const InitRule &r) {
  return std::tie(r.match, r.from, r.std, r.bound, r.gain, r.fanOut);
}
auto fields(const TieSpec &t) {
  return std::tie(t.first, t.second, t.transpose, t.copies);
}

template <typename T> bool same(const T &a, const T &b) { return fields(a) == fields(b); }
template <typename T> bool same(const std::vector<T> &a, const std::vector<T> &b) {
  return std::ranges::equal(
      a, b, [](const T &x, const T &y) { return fields(x) == fields(y); });
}

} // namespace

std::string trainingDifference(const TrainingSpec &a, const TrainingSpec &b) {
  if (!same(a.loss, b.loss))
    return "loss";
  if (a.optimizer != b.optimizer)
    return "optimizer";
  if (!same(a.parameterGroups, b.parameterGroups))
    return "parameter_groups";
  if (!same(a.schedule, b.schedule))
    return "schedule";
  if (!same(a.clip, b.clip))
    return "clip";
  if (!same(a.changes, b.changes))
    return "changes";
  if (!same(a.lora, b.lora))
    return "lora";
  if (!same(a.init, b.init))
    return "init";
  if (a.trainable != b.trainable || a.frozen != b.frozen || a.promote != b.promote)
    return "trainable";
  if (!same(a.tie, b.tie) || a.untie != b.untie)
    return "tie";
  return "";
}

bool isSingle(const PrecisionSpec &precision) {
  return !precision.isNarrow() && precision.optimizerState == "fp32" &&
         !precision.policy.isOn() &&
         std::ranges::all_of(precision.rules, [](const StorageRule &rule) {
           return rule.storage.empty() && rule.saved.empty() &&
                  (rule.moments.empty() || rule.moments == "fp32");
         });
}

} // namespace sluice::cli
