#pragma once
// A region's CUDA kernel on the emulator.

#include "tests/codegen/RegionCase.h"
#include "tests/emulator/Emulator.h"

namespace sluice::test {

struct CudaRun {
  std::vector<graph::HostTensor> outputs;
  emulator::Report report;
  int64_t bytesIn = 0, bytesOut = 0; // of the operands
};

/// What a block of every target has.
inline constexpr int64_t sharedLimit = 99 << 10;

/// Compiles for CUDA and emulates; records a failure where that does not go. Every
/// operand is a buffer of its own, outputs unwritten.
CudaRun runOnEmulator(RegionCase &region, std::optional<InPlace> inPlace = {},
                      int64_t firstThread = 0);

/// Runs, expects the interpreter's values and no findings, and the same bits in another
/// order of the threads.
CudaRun checkOnEmulator(RegionCase &region, double tolerance = 1e-5,
                        std::optional<InPlace> inPlace = {});

} // namespace sluice::test
