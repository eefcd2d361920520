#pragma once
// The hand-written CPU kernels by name: what a plan may launch, and the proof that a
// launch is safe.

#include "kernels/Kernel.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// x86-64-v3 (AVX2, FMA), x86-64-v4 (AVX-512 F, BW, DQ, VL) and Dots give the same bits.
/// Dots is v4 with products of bf16 by dot products of pairs (AVX512_BF16). Amx is v4
/// with products of bf16 on the matrix unit, which have bits of their own.
enum class FeatureLevel { V3, V4, Dots, Amx };

/// The kernel called `name`, or null.
KernelFn findBuiltinKernel(std::string_view name, FeatureLevel level);

/// Names of all kernels, sorted.
std::span<const std::string_view> builtinKernelNames();

/// What a launch does to one operand.
struct OperandExtent {
  int64_t bytes = 0; ///< all units together stay inside [0, bytes)
  /// Above 0: unit u touches only [u * unitBytes, (u + 1) * unitBytes), so a chunk may
  /// work on a piece of the buffer (Operand.unit_stride = unitBytes * Stage.unit_scale).
  int64_t unitBytes = 0;
  bool written = false;
  /// Scratch: each worker needs `bytes` of its own (Operand.worker_stride >= bytes).
  bool perWorker = false;
};

/// As many parameters as later versions added to any kernel. Plans made before have none
/// of them: a launch needs that many zeros behind its own.
constexpr size_t kAddedParams = 10;

/// Checks the parameters of a launch by themselves and derives from them what it touches,
/// operand by operand in the order the kernel documents. Otherwise says why the launch is
/// refused.
bool describeBuiltinLaunch(std::string_view name, const int64_t *params, size_t nparams,
                           int64_t units, std::vector<OperandExtent> &extents,
                           std::string &why);

/// True if the launch stays inside its operands, whatever their contents:
/// `operandSizes[i]` bytes are addressable at operand i (for one worker, where workers
/// have their own). For operands with a unit_stride use describeBuiltinLaunch and the
/// size of a chunk.
bool validBuiltinLaunch(std::string_view name, const int64_t *params, size_t nparams,
                        const int64_t *operandSizes, size_t nops, int64_t units,
                        std::string &why);

} // namespace sluice
