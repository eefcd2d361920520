#include "passes/planning/CostModel.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

double flopRate(double f32, ComputeType type, const DeviceRates &rates) {
  switch (type) {
  case ComputeType::F32:
    return f32;
  case ComputeType::F64:
    return rates.f64Flops;
  case ComputeType::Bf16:
    return rates.bf16Flops;
  case ComputeType::F16:
    return rates.f16Flops;
  case ComputeType::F8:
    return rates.f8Flops;
  }
  return f32;
}

double secondsOf(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

const ProductRates &ratesOf(ProductKind kind, const DeviceRates &rates) {
  return kind == ProductKind::Product ? rates.product
         : kind == ProductKind::Conv  ? rates.conv
                                      : rates.convWeightGrad;
}

/// Of one worker. Tiles are dealt to processors in rounds; all but the last are full.
double productSeconds(const ProductWork &work, ComputeType type,
                      const DeviceRates &rates) {
  const ProductRates &of = ratesOf(work.kind, rates);
  double rounds = work.tiles > 0 ? work.tiles / double(rates.processors) : 1;
  double idle = std::ceil(rounds) / rounds;
  bool isBf16 = type == ComputeType::Bf16;
  double flops = isBf16 && work.kind != ProductKind::Product && rates.conv16Flops > 0
                     ? rates.conv16Flops
                     : flopRate(of.flops, type, rates);
  return secondsOf(work.flops, flops) * idle + secondsOf(work.left, of.left) +
         secondsOf(work.right, of.right) + secondsOf(work.store, of.store);
}

/// The measured times, joined by straight lines from none for no bytes; never falling.
double memorySeconds(double bytes, const DeviceRates &rates) {
  double fromBytes = 0, fromSeconds = 0, last = 0;
  for (const BandwidthPoint &point : rates.memory) {
    last = point.bytesPerSecond;
    double seconds = std::max(secondsOf(double(point.bytes), last), fromSeconds);
    if (bytes <= double(point.bytes))
      return fromSeconds + (seconds - fromSeconds) * (bytes - fromBytes) /
                               (double(point.bytes) - fromBytes);
    fromBytes = double(point.bytes);
    fromSeconds = seconds;
  }
  return fromSeconds + secondsOf(bytes - fromBytes, last);
}

/// The scaling at that many workers, between the measured ones along straight lines.
ThreadScaling scalingAt(double workers, const DeviceRates &rates) {
  ThreadScaling from{1, 1, 1, 1};
  for (const ThreadScaling &to : rates.scaling) {
    if (workers <= double(from.threads) || to.threads <= from.threads)
      continue;
    double share = std::min(1.0, (workers - double(from.threads)) /
                                     double(to.threads - from.threads));
    ThreadScaling at = from;
    at.matrix += share * (to.matrix - from.matrix);
    at.vector += share * (to.vector - from.vector);
    at.memory += share * (to.memory - from.memory);
    if (workers <= double(to.threads))
      return at;
    from = to;
  }
  return from;
}

/// How many workers have something to do, on average: the last round may leave some idle.
double busyWorkers(const LaunchCost &cost, const DeviceRates &rates) {
  double threads = double(std::max<int64_t>(1, rates.threads));
  if (cost.chunks <= 0)
    return threads;
  return double(cost.chunks) / std::ceil(double(cost.chunks) / threads);
}

} // namespace

const char *nameOf(BoundBy bound) {
  constexpr const char *names[] = {"matrix", "vector", "memory", "overhead", "link"};
  return names[static_cast<int>(bound)];
}

LaunchTime predictLaunch(const LaunchCost &cost, const DeviceRates &rates) {
  double workers = busyWorkers(cost, rates);
  ThreadScaling scale = scalingAt(workers, rates);
  double matrixUs = productSeconds(cost.product, cost.type, rates) / scale.matrix * 1e6;
  double vectorUs = secondsOf(cost.vectorFlops, rates.vectorFlops) / scale.vector * 1e6;
  double memoryUs = std::max(memorySeconds(cost.bytes, rates),
                             secondsOf(cost.indexBytes, rates.indexBytes) +
                                 secondsOf(cost.moveBytes, rates.moveBytes)) /
                    scale.memory * 1e6;
  double overheadUs =
      double(cost.launches) * (rates.launchUs + (workers > 1 ? rates.syncUs : 0));

  LaunchTime time;
  double arithmeticUs = matrixUs + vectorUs, workUs = std::max(arithmeticUs, memoryUs);
  time.us = workUs + overheadUs;
  if (overheadUs >= workUs)
    time.boundBy = BoundBy::Overhead;
  else if (memoryUs > arithmeticUs)
    time.boundBy = BoundBy::Memory;
  else
    time.boundBy = matrixUs >= vectorUs ? BoundBy::Matrix : BoundBy::Vector;
  return time;
}

double predictCopyUs(double bytes, const DeviceRates &rates) {
  return rates.linkLatencyUs + secondsOf(bytes, rates.linkBytesPerSecond) * 1e6;
}

} // namespace sluice
