// Positions of extremes and running sums along an axis.

#include "kernels/MoveParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// The first element and then any that is better (or, for the last one, as good) wins; a
/// NaN is best.
template <typename T, bool Minimum, bool Last>
int64_t bestPosition(const T *x, int64_t size, int64_t step) {
  int64_t at = 0;
  T best = x[0];
  for (int64_t i = 1; i < size; ++i) {
    T v = x[i * step];
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

template <typename T>
void argReduceOf(void *const *buffers, const int64_t *params, int64_t begin,
                 int64_t end) {
  auto p = readParams<ArgReduceParams>(params);
  auto *x = static_cast<const T *>(buffers[0]);
  auto *y = static_cast<int64_t *>(buffers[1]);
  auto *position =
      p.minimum ? (p.last ? bestPosition<T, true, true> : bestPosition<T, true, false>)
                : (p.last ? bestPosition<T, false, true> : bestPosition<T, false, false>);
  int64_t last = least(end * p.unitElements, p.outer * p.inner);
  for (int64_t i = begin * p.unitElements; i < last; ++i)
    y[i] = position(x + i / p.inner * p.xOuter + i % p.inner * p.xInner, p.size, p.xAxis);
}

/// Sum: what the running sum is kept in; unsigned where an overflow must wrap.
template <typename T, typename Sum>
void cumsumOf(void *const *buffers, const int64_t *params, int64_t begin, int64_t end) {
  auto p = readParams<CumsumParams>(params);
  if (p.size == 0)
    return;
  int64_t last = least(end * p.unitLines, p.outer * p.inner);
  for (int64_t line = begin * p.unitLines; line < last; ++line) {
    int64_t first = line / p.inner * p.size * p.inner + line % p.inner;
    auto *x = static_cast<const T *>(buffers[0]) + first;
    auto *y = static_cast<T *>(buffers[1]) + first;
    Sum sum = 0;
    for (int64_t i = 0; i < p.size; ++i) {
      int64_t at = (p.reverse ? p.size - 1 - i : i) * p.inner;
      Sum next = sum + static_cast<Sum>(x[at]);
      y[at] = static_cast<T>(p.exclusive ? sum : next);
      sum = next;
    }
  }
}

} // namespace

void argReduce(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  argReduceOf<float>(buffers, params, begin, end);
}

void argReduceI64(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                  int64_t) {
  argReduceOf<int64_t>(buffers, params, begin, end);
}

void cumsum(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
            int64_t) {
  cumsumOf<float, float>(buffers, params, begin, end);
}

void cumsumI64(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  cumsumOf<int64_t, uint64_t>(buffers, params, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
