#pragma once
// Time of a launch from its work and the rates of a device.

#include "ir/DeviceProfile.h"

#include <cstdint>

namespace sluice {

enum class ComputeType { F32, Bf16, F16, F8, F64 };
enum class ProductKind { Product, Conv, ConvWeightGrad };

/// Matrix work of a launch: arithmetic, in whole tiles, and elements moved for it.
struct ProductWork {
  ProductKind kind = ProductKind::Product;
  double flops = 0, left = 0, right = 0, store = 0;
  double tiles = 0; ///< independent ones; 0: not known
};

struct LaunchCost {
  ProductWork product;
  double vectorFlops = 0; ///< elementwise arithmetic and reductions
  double indexBytes = 0;  ///< read and written by gathers, scatters, pools
  double moveBytes = 0;   ///< by transposes, packing, copies
  double bytes = 0;       ///< of operands and results, each once
  ComputeType type = ComputeType::F32;
  int64_t launches = 1;
  int64_t chunks = 0; ///< pieces that workers share; 0: enough for all
};

enum class BoundBy { Matrix, Vector, Memory, Overhead, Link };
const char *nameOf(BoundBy bound);

struct LaunchTime {
  double us = 0;
  BoundBy boundBy = BoundBy::Overhead;
};

/// max(arithmetic, bytes) + overhead, in microseconds. Not falling in any part of the
/// cost.
LaunchTime predictLaunch(const LaunchCost &cost, const DeviceRates &rates);

/// Of a copy between the device and its host.
double predictCopyUs(double bytes, const DeviceRates &rates);

} // namespace sluice
