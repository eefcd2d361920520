// Positions of extremes and running sums along an axis.

#include "kernels/MoveParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// The first element and then any that is better (or, for the last one, as good) wins; a
/// NaN is best.
template <bool Minimum, bool Last>
int64_t bestPosition(const float *x, int64_t size, int64_t step) {
  int64_t at = 0;
  float best = x[0];
  for (int64_t i = 1; i < size; ++i) {
    float v = x[i * step];
    bool isNan = v != v, bestIsNan = best != best;
    bool better = bestIsNan ? false : isNan || (Minimum ? v < best : v > best);
    bool equal = Last && (v == best || (isNan && bestIsNan));
    if (better || equal) {
      best = v;
      at = i;
    }
  }
  return at;
}

} // namespace

void argReduce(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  auto p = readParams<ArgReduceParams>(params);
  auto *x = static_cast<const float *>(buffers[0]);
  auto *y = static_cast<int64_t *>(buffers[1]);
  auto *position =
      p.minimum ? (p.last ? bestPosition<true, true> : bestPosition<true, false>)
                : (p.last ? bestPosition<false, true> : bestPosition<false, false>);
  int64_t last = least(end * p.unitElements, p.outer * p.inner);
  for (int64_t i = begin * p.unitElements; i < last; ++i)
    y[i] = position(x + i / p.inner * p.xOuter + i % p.inner * p.xInner, p.size, p.xAxis);
}

void cumsum(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
            int64_t) {
  auto p = readParams<CumsumParams>(params);
  if (p.size == 0)
    return;
  int64_t last = least(end * p.unitLines, p.outer * p.inner);
  for (int64_t line = begin * p.unitLines; line < last; ++line) {
    int64_t first = line / p.inner * p.size * p.inner + line % p.inner;
    auto *x = static_cast<const float *>(buffers[0]) + first;
    auto *y = static_cast<float *>(buffers[1]) + first;
    float sum = 0;
    for (int64_t i = 0; i < p.size; ++i) {
      int64_t at = (p.reverse ? p.size - 1 - i : i) * p.inner;
      float next = sum + x[at];
      y[at] = p.exclusive ? sum : next;
      sum = next;
    }
  }
}

} // namespace sluice::SLUICE_LEVEL
