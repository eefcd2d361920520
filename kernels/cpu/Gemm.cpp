// Matrix products, summed in f32. Compiled once per feature level.

#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/GemmBlocks.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {

void gemm(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
          int64_t) {
  auto p = readParams<GemmParams>(params);
  FlushDenormals guard(usesPairs(p.aType, p.bType));
  multiply<Singles>(p, false, buffers, begin, end);
}

void gemmPacked(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t) {
  auto p = readParams<GemmParams>(params);
  FlushDenormals guard(usesPairs(p.aType, p.bType));
  multiply<Singles>(p, true, buffers, begin, end);
}

void gemmPackB(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  packPanels<Singles>(readParams<GemmPackBParams>(params), buffers, begin, end);
}

void gemmSplitK(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t) {
  auto p = readParams<GemmSplitKParams>(params);
  FlushDenormals guard(usesPairs(p.aType, p.bType));
  multiplySlices<Singles>(p, buffers, begin, end);
}

template <typename S>
static void sumRows(const SumSlicesParams &p, void *const *buffers, int64_t begin,
                    int64_t end) {
  auto *from = static_cast<const float *>(buffers[0]);
  int64_t size = p.rows * p.cols;
  if (size == 0)
    return;
  for (int64_t r = begin * p.unitRows; r < least(end * p.unitRows, p.rows); ++r) {
    auto *c = static_cast<typename S::Element *>(buffers[1]) + r * p.cRow;
    int64_t j = 0;
    for (; p.slices && j + kLanes <= p.cols; j += kLanes) {
      const float *x = from + r * p.cols + j;
      Vec sum = load(x);
      for (int64_t s = 1; s < p.slices; ++s)
        sum = add(sum, load(x + s * size));
      alignas(64) float sums[kLanes];
      if (p.accumulate) {
        widen<S>(c + j, sums, kLanes);
        sum = add(load(sums), sum);
      }
      store(sums, sum);
      narrow<S>(sums, c + j, kLanes);
    }
    for (; j < p.cols; ++j) {
      const float *x = from + r * p.cols + j;
      float sum = p.slices ? x[0] : 0;
      for (int64_t s = 1; s < p.slices; ++s)
        sum += x[s * size];
      S::store1(c + j, p.accumulate ? S::load1(c + j) + sum : sum);
    }
  }
}

void sumSlices(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  auto p = readParams<SumSlicesParams>(params);
  byFormat(p.cType, [&]<typename S>(S) { sumRows<S>(p, buffers, begin, end); });
}

} // namespace sluice::SLUICE_LEVEL
