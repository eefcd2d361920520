#include "runtime/Schedule.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

/// From 1 at `progress` 0 to 0 at 1.
double fall(fbs::DecayKind kind, double progress) {
  switch (kind) {
  case fbs::DecayKind::cosine:
    return 0.5 * (1.0 + std::cos(M_PI * progress));
  case fbs::DecayKind::one_minus_sqrt:
    return 1.0 - std::sqrt(progress);
  case fbs::DecayKind::linear:
    break;
  }
  return 1.0 - progress;
}

double oneCycle(const fbs::ParamGroup &group, double time) {
  double total = static_cast<double>(group.total_steps());
  double top = group.pct_start() * total - 1.0, last = total - 1.0;
  double start = 1.0 / group.div_factor(), end = start / group.final_div_factor();
  auto between = [](double from, double to, double progress) {
    return to + (from - to) * fall(fbs::DecayKind::cosine, std::min(1.0, progress));
  };
  if (time <= top)
    return between(start, 1.0, top > 0.0 ? time / top : 1.0);
  return between(1.0, end, last > top ? (time - top) / (last - top) : 1.0);
}

double steps(const fbs::ParamGroup &group, double time, double warmup) {
  double count = 0;
  if (group.step_size() > 0)
    count = std::floor((time - warmup) / static_cast<double>(group.step_size()));
  else if (group.points())
    for (int64_t point : *group.points())
      count += static_cast<double>(point) <= time;
  return std::pow(group.gamma(), count);
}

double table(const fbs::ParamGroup &group, double time) {
  const auto &points = *group.points();
  const auto &factors = *group.factors();
  uint32_t next = 0;
  while (next < points.size() && static_cast<double>(points.Get(next)) <= time)
    ++next;
  if (next == 0)
    return factors.Get(0);
  if (next == points.size())
    return factors.Get(next - 1);
  double from = static_cast<double>(points.Get(next - 1));
  double progress = (time - from) / (static_cast<double>(points.Get(next)) - from);
  return factors.Get(next - 1) + (factors.Get(next) - factors.Get(next - 1)) * progress;
}

} // namespace

double learningRate(const fbs::ParamGroup &group, int64_t t) {
  double rate = changedValue(group.changes(), "lr", t, group.lr()) * group.lr_scale();
  double time = static_cast<double>(t);
  double warmup =
      std::round(static_cast<double>(group.warmup_steps()) * group.warmup_scale());
  if (group.schedule() == fbs::ScheduleKind::one_cycle)
    return rate * oneCycle(group, time);
  if (time < warmup)
    return rate * time / warmup;
  double total = static_cast<double>(group.total_steps()), least = group.min_ratio();
  double progress = std::min(1.0, (time - warmup) / std::max(1.0, total - warmup));
  auto down = [&](fbs::DecayKind kind, double part) {
    return rate * (least + (1.0 - least) * fall(kind, part));
  };
  switch (group.schedule()) {
  case fbs::ScheduleKind::linear:
    return down(fbs::DecayKind::linear, progress);
  case fbs::ScheduleKind::cosine:
    return down(fbs::DecayKind::cosine, progress);
  case fbs::ScheduleKind::wsd: {
    double length = std::max<double>(1.0, static_cast<double>(group.decay_steps()));
    double part = (time - (total - static_cast<double>(group.decay_steps()))) / length;
    return part <= 0.0 ? rate : down(group.decay(), std::min(1.0, part));
  }
  case fbs::ScheduleKind::step:
    return rate * steps(group, time, warmup);
  case fbs::ScheduleKind::table:
    return rate * table(group, time);
  case fbs::ScheduleKind::one_cycle:
  case fbs::ScheduleKind::constant:
    break;
  }
  return rate;
}

double changedValue(const HyperChanges *changes, std::string_view name, int64_t t,
                    double otherwise) {
  for (uint32_t i = 0; changes && i < changes->size(); ++i)
    if (changes->Get(i)->update() <= t && changes->Get(i)->name()->string_view() == name)
      otherwise = changes->Get(i)->value();
  return otherwise;
}

double biasCorrection(double beta, int64_t updatesDone) {
  return 1.0 - std::pow(beta, static_cast<double>(updatesDone + 1));
}

static double nadamMu(double beta1, double momentumDecay, int64_t t) {
  double decayed = std::pow(0.96, static_cast<double>(t) * momentumDecay);
  return beta1 * (1.0 - 0.5 * decayed);
}

double nextNadamProduct(double beta1, double momentumDecay, int64_t updatesDone,
                        double product) {
  // Once it is below half an ulp of 1, further factors change nothing.
  return product > 0x1p-60 ? product * nadamMu(beta1, momentumDecay, updatesDone + 1)
                           : product;
}

double nadamProduct(double beta1, double momentumDecay, int64_t updatesDone) {
  double product = 1.0;
  for (int64_t t = 0; t < updatesDone && product > 0x1p-60; ++t)
    product = nextNadamProduct(beta1, momentumDecay, t, product);
  return product;
}

NadamWeights nadamWeights(double beta1, double momentumDecay, int64_t updatesDone,
                          double product) {
  double now = nadamMu(beta1, momentumDecay, updatesDone + 1);
  double next = nadamMu(beta1, momentumDecay, updatesDone + 2);
  product = nextNadamProduct(beta1, momentumDecay, updatesDone, product);
  return {(1.0 - now) / (1.0 - product), next / (1.0 - product * next)};
}

double radamRectification(double beta2, int64_t updatesDone) {
  double t = static_cast<double>(updatesDone + 1), power = std::pow(beta2, t);
  double most = 2.0 / (1.0 - beta2) - 1.0, rho = most - 2.0 * t * power / (1.0 - power);
  if (rho <= 5.0)
    return 0.0;
  return std::sqrt((rho - 4.0) * (rho - 2.0) * most /
                   ((most - 4.0) * (most - 2.0) * rho));
}

} // namespace sluice
