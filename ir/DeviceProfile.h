#pragma once
// What is planned with: memory and rates of one device. From a shipped profile or a YAML
// file (frontend/DeviceReader.h); `sluice calibrate` writes the one of this machine.
// Plain C++: the planners use it without MLIR.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// Rates of matrix kernels, whose time is the sum of four parts: arithmetic on whole
/// tiles, the elements packed (or gathered) of either operand, and the elements of the
/// result written, once for each block of the sum.
struct ProductRates {
  double flops = 250e9; ///< per second, one worker
  double left = 7e9;    ///< elements per second; 0: costs nothing
  double right = 30e9;
  double store = 20e9;
};

/// How fast a pass over that many bytes, again and again, reads and writes them.
struct BandwidthPoint {
  int64_t bytes = 0;
  double bytesPerSecond = 0;
};

/// How many times faster than one worker `threads` workers are.
struct ThreadScaling {
  int64_t threads = 1;
  double matrix = 1, vector = 1, memory = 1;
};

/// What a tuned kernel reaches, not the data sheet's peak. Defaults: one core with
/// AVX-512, as calibrated.
struct DeviceRates {
  ProductRates product, conv{250e9, 8e9, 8e9, 10e9},
      convWeightGrad{250e9, 8e9, 8e9, 10e9};
  double f64Flops = 60e9, bf16Flops = 250e9, f16Flops = 250e9, f8Flops = 250e9;
  /// Of convolutions of bf16; 0: as its products. Those of f16 run at the rate of f32.
  double conv16Flops = 0;
  double vectorFlops = 160e9; ///< elementwise arithmetic and reductions
  double indexBytes = 20e9;   ///< per second: gather, scatter, pools
  double moveBytes = 60e9;    ///< transposes, packing, copies
  std::vector<BandwidthPoint> memory = {
      {1 << 18, 250e9}, {1 << 22, 110e9}, {1 << 28, 60e9}};
  double launchUs = 0.1; ///< per launch: dispatch
  double syncUs = 1;     ///< per launch that workers share: barrier and imbalance
  double linkBytesPerSecond = 10e9, linkLatencyUs = 2; ///< to the host, one direction
  double rankBytesPerSecond = 8e9, rankLatencyUs = 5;  ///< to another rank, one direction
  /// Of collectives in which all pairs of ranks exchange; 0: rings and trees.
  double rankRounds = 0;
  /// What a message takes from the launches beside it where it has no processor of its
  /// own: for itself, and bytes per second (0: nothing for bytes).
  double rankMessageUs = 0, rankHostBytesPerSecond = 0;
  double ranksPerNode = 0;                             ///< 0: however many there are
  double nodeBytesPerSecond = 1e9, nodeLatencyUs = 10; ///< of a rank to other nodes
  int64_t tileRows = 12, tileCols = 32; ///< of a product; sizes are rounded up to them
  int64_t processors = 1; ///< that tiles are dealt to; the last round may leave some idle
  int64_t threads = 1;    ///< workers of the plan; no part of a profile
  std::vector<ThreadScaling> scaling = {{1, 1, 1, 1}, {2, 1.95, 1.95, 1.6}};
};

/// Memory that is taken on the device besides the arena.
struct DeviceItem {
  std::string name;
  int64_t bytes = 0;
};

struct DeviceProfile {
  std::string name = "cpu";
  std::string target = "cpu"; ///< cpu or cuda
  std::string arch;           ///< sm_80, ...
  int64_t memoryBytes = 0;    ///< 0: not known
  std::vector<DeviceItem> context;
  DeviceRates rates;

  int64_t contextBytes() const {
    int64_t sum = 0;
    for (const DeviceItem &item : context)
      sum += item.bytes;
    return sum;
  }
};

} // namespace sluice
