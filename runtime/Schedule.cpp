#include "runtime/Schedule.h"

#include <algorithm>
#include <cmath>

namespace sluice {

double learningRate(const fbs::ParamGroup &group, int64_t updatesDone) {
  double rate = group.lr() * group.lr_scale();
  double time = static_cast<double>(updatesDone);
  double warmup =
      std::round(static_cast<double>(group.warmup_steps()) * group.warmup_scale());
  if (time < warmup)
    return rate * time / warmup;
  double rest = std::max(1.0, static_cast<double>(group.total_steps()) - warmup);
  double progress = std::min(1.0, (time - warmup) / rest);
  switch (group.schedule()) {
  case fbs::ScheduleKind::linear:
    return rate * (1.0 - progress);
  case fbs::ScheduleKind::cosine:
    return rate * 0.5 * (1.0 + std::cos(M_PI * progress));
  case fbs::ScheduleKind::constant:
    break;
  }
  return rate;
}

double biasCorrection(double beta, int64_t updatesDone) {
  return 1.0 - std::pow(beta, static_cast<double>(updatesDone + 1));
}

} // namespace sluice
