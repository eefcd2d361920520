#pragma once
// Roofline time of a launch, from the rates of a device.

#include <cstdint>

namespace sluice {

enum class ComputeType { F32, Bf16, F16, F8, F64 };

/// Rates of one device, as planned with: what a tuned kernel reaches, not the data
/// sheet's peak. Defaults: one machine's two cores (AVX-512, AMX); `sluice calibrate`
/// replaces them.
struct DeviceRates {
  double f32Flops = 300e9; ///< per second, all threads
  double f64Flops = 110e9;
  double bf16Flops = 2e12;
  double f16Flops = 300e9;
  double f8Flops = 300e9;
  double memoryBytesPerSecond = 20e9;
  double cacheBytesPerSecond = 180e9; ///< for launches whose bytes fit in `cacheBytes`
  int64_t cacheBytes = 2 << 20;
  double launchOverheadUs = 1.5; ///< per launch: dispatch and barrier
};

struct LaunchCost {
  double flops = 0;
  double bytes = 0; ///< read and written, each once
  ComputeType type = ComputeType::F32;
  int64_t launches = 1;
};

enum class BoundBy { Compute, Memory, Overhead };

struct LaunchTime {
  double us = 0;
  BoundBy boundBy = BoundBy::Overhead;
};

/// max(flops / rate, bytes / bandwidth) + overhead, in microseconds. Monotone in each
/// argument.
LaunchTime predictLaunch(const LaunchCost &cost, const DeviceRates &rates);

} // namespace sluice
