#include "runtime/comm/SumTree.h"

#include <cstring>

namespace sluice {

// Integers wrap around, which signed ones must not.
template <class T> using Sources = const T *const *;

/// The sum of up to four ranks at once, without a round trip through memory.
template <class T>
static void sumLeaf(Sources<T> x, int ranks, T *__restrict sum, uint64_t count) {
  switch (ranks) {
  case 1:
    std::memcpy(sum, x[0], count * sizeof(T));
    return;
  case 2:
    for (uint64_t i = 0; i < count; ++i)
      sum[i] = x[0][i] + x[1][i];
    return;
  case 3:
    for (uint64_t i = 0; i < count; ++i)
      sum[i] = (x[0][i] + x[1][i]) + x[2][i];
    return;
  default:
    for (uint64_t i = 0; i < count; ++i)
      sum[i] = (x[0][i] + x[1][i]) + (x[2][i] + x[3][i]);
  }
}

/// The subtree of `width` (a power of two) places from x[0] on, of which `ranks` are
/// taken. `waiting` has room for a block in each round above the leaves.
template <class T>
static void sumSubtree(Sources<T> x, int ranks, int width, T *sum, T *waiting,
                       uint64_t count) {
  if (width <= 4) {
    sumLeaf(x, ranks, sum, count);
    return;
  }
  int half = width / 2;
  sumSubtree(x, ranks < half ? ranks : half, half, sum, waiting, count);
  if (ranks <= half)
    return;
  T *right = waiting;
  sumSubtree(x + half, ranks - half, half, right, waiting + sumBlockBytes / sizeof(T),
             count);
  for (uint64_t i = 0; i < count; ++i)
    sum[i] = sum[i] + right[i];
}

template <class T>
static void sumAs(const uint8_t *const *sources, int ranks, uint8_t *sum,
                  uint64_t bytes) {
  // 4 * 2^10 = maxRanks places.
  alignas(64) T waiting[10 * sumBlockBytes / sizeof(T)];
  static_assert(4 << 10 == maxRanks);
  int width = 4;
  while (width < ranks)
    width *= 2;
  sumSubtree(reinterpret_cast<Sources<T>>(sources), ranks, width,
             reinterpret_cast<T *>(sum), waiting, bytes / sizeof(T));
}

void sumBlock(const uint8_t *const *sources, int ranks, uint8_t *sum, uint64_t bytes,
              SumType type) {
  switch (type) {
  case SumType::f32:
    return sumAs<float>(sources, ranks, sum, bytes);
  case SumType::f64:
    return sumAs<double>(sources, ranks, sum, bytes);
  case SumType::i64:
    return sumAs<uint64_t>(sources, ranks, sum, bytes);
  }
}

} // namespace sluice
