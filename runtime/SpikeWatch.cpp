#include "runtime/SpikeWatch.h"

#include <algorithm>
#include <cmath>

namespace sluice {

/// A checkpoint may say anything.
int64_t SpikeWatch::times() const {
  if (!rule)
    return 0;
  double most = static_cast<double>(rule->max_times());
  return state[cuts] > 0 ? static_cast<int64_t>(std::min(state[cuts], most)) : 0;
}

double SpikeWatch::factor() const {
  return rule ? std::pow(rule->scale(), static_cast<double>(times())) : 1;
}

std::optional<double> SpikeWatch::add(double loss) {
  if (!rule || !std::isfinite(loss))
    return std::nullopt;
  if (state[cooldown] > 0) {
    state[cooldown] -= 1;
    return std::nullopt;
  }
  state[count] += 1;
  double difference = loss - state[mean];
  state[mean] += difference / state[count];
  state[squares] += difference * (loss - state[mean]);
  if (state[count] < static_cast<double>(rule->window()))
    return std::nullopt;
  double deviation = std::sqrt(std::max(0.0, state[squares] / state[count]));
  double average = std::abs(state[mean]);
  double fluctuation = average > 0 ? deviation / average : 0;
  bool isAbove = fluctuation > rule->fluctuation(),
       isDue = isAbove && state[wasAbove] > 0;
  state[mean] = state[squares] = state[count] = 0;
  state[wasAbove] = isAbove;
  if (!isDue || times() >= rule->max_times())
    return std::nullopt;
  state[wasAbove] = 0;
  state[cooldown] = static_cast<double>(rule->cooldown());
  state[cuts] = static_cast<double>(times() + 1);
  return fluctuation;
}

} // namespace sluice
