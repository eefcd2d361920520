#pragma once
// Products of bf16 on tiles for tests: on a unit in plain code, and their machine code on
// the processor's or on a trap; operands and the documented order of sums.

#include "kernels/MatrixUnit.h"
#include "kernels/cpu/Kernels.h"
#include "tests/kernels/GemmCase.h"
#include "tests/kernels/HalfFormats.h"
#include "tests/kernels/TileTrap.h"

#include <optional>

namespace sluice::emulated {
SLUICE_PAIR_KERNELS;
}

namespace sluice::test {

inline KernelFn emulatedKernel(std::string_view name) {
  constexpr std::pair<std::string_view, KernelFn> kKernels[] = {
      {"attention_f32", emulated::attentionForward},
      {"attention_grad_f32", emulated::attentionGrad},
      {"conv_forward_f32", emulated::convForward},
      {"conv_input_grad_f32", emulated::convInputGrad},
      {"conv_weight_grad_f32", emulated::convWeightGrad},
      {"gemm_f32", emulated::gemm},
      {"gemm_pack_b_f32", emulated::gemmPackB},
      {"gemm_packed_f32", emulated::gemmPacked},
      {"gemm_splitk_f32", emulated::gemmSplitK},
  };
  for (auto [known, kernel] : kKernels)
    if (known == name)
      return kernel;
  return nullptr;
}

/// Where the processor has no tiles, the machine code for them is executed by a trap.
inline bool trapsTiles() {
  static const bool traps = [] {
    for (const std::string &feature : missingForTiles())
      if (feature == "amx-tile")
        return hasLevel(FeatureLevel::V4);
    return false;
  }();
  return traps;
}

/// On the emulated unit, and the code for the real one.
inline std::vector<Bytes> runOnTiles(const KernelCase &c) {
  std::vector<KernelFn> kernels = {emulatedKernel(c.name)};
  if (missingForTiles().empty() || trapsTiles())
    kernels.push_back(findBuiltinKernel(c.name, FeatureLevel::Amx));
  std::optional<TileTrap> trap;
  if (trapsTiles())
    trap.emplace();
  return runOn(kernels, c);
}

struct TileOperands {
  std::vector<float> a, b;
  Bytes c;
};

inline TileOperands operandsOf(const GemmParams &p) {
  std::mt19937 rng(p.m * 31 + p.n * 17 + p.k);
  auto halves = [&](int64_t count) {
    return loaded(stored(randomFloats(rng, count), format::kBf16), format::kBf16);
  };
  TileOperands o{halves(sizeA(p)), halves(sizeB(p)),
                 poisoned(sizeC(p) * formatBytes(p.cType))};
  if (p.accumulate)
    o.c = stored(randomFloats(rng, sizeC(p)), p.cType);
  o.a.reserve(1), o.b.reserve(1); // rows of nothing are somewhere
  return o;
}

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0 : x; }

/// Element (i, j) of a matrix, from `sum` on.
inline float chained(float sum, const GemmParams &p, const float *a, const float *b) {
  for (int64_t k0 = 0; k0 < p.k; k0 += 32) {
    float parts[2] = {0, 0};
    for (int64_t k = k0; k < k0 + 32; ++k) {
      float x = k < p.k ? a[k * p.aCol] : 0, y = k < p.k ? b[k * p.bRow] : 0;
      parts[k % 2] = flushed(std::fma(flushed(x), flushed(y), parts[k % 2]));
    }
    sum = flushed(flushed(sum) + flushed(parts[0] + parts[1]));
  }
  return sum;
}

/// Calls body(i, j, a row, b column, index in C) for every element of C.
template <typename Body>
void forElements(const GemmParams &p, const TileOperands &o, Body body) {
  for (int64_t b0 = 0; b0 < p.batch0; ++b0)
    for (int64_t b1 = 0; b1 < p.batch1; ++b1)
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j)
          body(o.a.data() + b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow,
               o.b.data() + b0 * p.bBatch0 + b1 * p.bBatch1 + j * p.bCol,
               b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j);
}

inline Bytes runTileGemm(const GemmParams &p, const TileOperands &o) {
  return runOnTiles({"gemm_f32",
                     packParams(p),
                     gemmUnits(p),
                     {stored(o.a, p.aType), stored(o.b, p.bType), o.c, {}}})[2];
}

} // namespace sluice::test
