#include "passes/planning/CostModel.h"

#include <algorithm>

namespace sluice {

static double flopRate(ComputeType type, const DeviceRates &rates) {
  switch (type) {
  case ComputeType::F32:
    return rates.f32Flops;
  case ComputeType::F64:
    return rates.f64Flops;
  case ComputeType::Bf16:
    return rates.bf16Flops;
  case ComputeType::F16:
    return rates.f16Flops;
  case ComputeType::F8:
    return rates.f8Flops;
  }
  return rates.f32Flops;
}

LaunchTime predictLaunch(const LaunchCost &cost, const DeviceRates &rates) {
  double computeUs = cost.flops / flopRate(cost.type, rates) * 1e6;
  // Bytes above the size of the cache pay memory's price, those below it the cache's:
  // continuous at the border, so that a larger launch is never predicted faster.
  double cached = std::min(cost.bytes, double(rates.cacheBytes));
  double memoryUs =
      (cached / std::max(rates.cacheBytesPerSecond, rates.memoryBytesPerSecond) +
       (cost.bytes - cached) / rates.memoryBytesPerSecond) *
      1e6;
  double overheadUs = double(cost.launches) * rates.launchOverheadUs;

  LaunchTime time;
  time.us = std::max(computeUs, memoryUs) + overheadUs;
  if (overheadUs >= std::max(computeUs, memoryUs))
    time.boundBy = BoundBy::Overhead;
  else
    time.boundBy = computeUs >= memoryUs ? BoundBy::Compute : BoundBy::Memory;
  return time;
}

} // namespace sluice
