#pragma once
// Windows sliding over a plane (pools, depthwise convolutions), walked by blocks of a row
// of outputs: a block's sums stay in L1 or registers while kernel positions pass, and
// inner loops run along the row.

#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

struct Range {
  int64_t low, high;
};

/// Outputs in one block.
constexpr int64_t kWindowBlock = 64;

/// Divisions by 1 are most of them and would be most of the time.
SLUICE_INLINE int64_t ceilDivBy(int64_t a, int64_t b) {
  return b == 1 ? a : ceilDiv(a, b);
}

/// Kernel positions k of output o with o * stride - pad + k * dilation inside x along d.
template <typename G> SLUICE_INLINE Range positionsInside(const G &g, int d, int64_t o) {
  int64_t start = o * g.stride[d] - g.pad[d];
  if (start >= 0 && start + (g.kernel[d] - 1) * g.dilation[d] < g.in[d])
    return {0, g.kernel[d]};
  int64_t left = g.in[d] - start;
  int64_t low = start >= 0 ? 0 : ceilDivBy(-start, g.dilation[d]);
  int64_t high = left <= 0 ? 0 : least(g.kernel[d], ceilDivBy(left, g.dilation[d]));
  return {least(low, high), high};
}

/// Outputs first + i, i < count, whose position (first + i) * stride + shift is inside a
/// row of x.
template <typename G>
SLUICE_INLINE Range outputsInside(const G &g, int64_t first, int64_t count,
                                  int64_t shift) {
  int64_t stride = g.stride[2], start = first * stride + shift;
  if (start >= 0 && start + (count - 1) * stride < g.in[2])
    return {0, count};
  int64_t left = g.in[2] - start;
  int64_t low = start >= 0 ? 0 : ceilDivBy(-start, stride);
  int64_t high = left <= 0 ? 0 : least(count, ceilDivBy(left, stride));
  return {least(low, high), high};
}

struct Block {
  int64_t row0, row1, first, count; ///< outputs (row0, row1, first + i), i < count
  int64_t index;                    ///< of the first output within its plane
};

template <int64_t Width = kWindowBlock, typename G, typename Body>
SLUICE_INLINE void forEachBlock(const G &g, Body body) {
  for (int64_t o0 = 0; o0 < g.out[0]; ++o0)
    for (int64_t o1 = 0; o1 < g.out[1]; ++o1)
      for (int64_t o2 = 0; o2 < g.out[2]; o2 += Width)
        body(Block{o0, o1, o2, least(Width, g.out[2] - o2),
                   (o0 * g.out[1] + o1) * g.out[2] + o2});
}

/// Calls body(kernel position, x index of output 0 of the block, outputs inside) for
/// kernel positions in order. The x index is right only for outputs inside.
template <typename G, typename Body>
SLUICE_INLINE void forEachPosition(const G &g, const Block &b, Body body) {
  Range r0 = positionsInside(g, 0, b.row0), r1 = positionsInside(g, 1, b.row1);
  for (int64_t k0 = r0.low; k0 < r0.high; ++k0)
    for (int64_t k1 = r1.low; k1 < r1.high; ++k1) {
      int64_t x0 = b.row0 * g.stride[0] - g.pad[0] + k0 * g.dilation[0];
      int64_t x1 = b.row1 * g.stride[1] - g.pad[1] + k1 * g.dilation[1];
      int64_t row = (x0 * g.in[1] + x1) * g.in[2],
              k = (k0 * g.kernel[1] + k1) * g.kernel[2];
      // A single output: only the positions inside are walked.
      Range r2 = b.count == 1 ? positionsInside(g, 2, b.first) : Range{0, g.kernel[2]};
      for (int64_t k2 = r2.low; k2 < r2.high; ++k2) {
        int64_t shift = k2 * g.dilation[2] - g.pad[2];
        Range inside =
            b.count == 1 ? Range{0, 1} : outputsInside(g, b.first, b.count, shift);
        if (inside.low < inside.high)
          body(k + k2, row + shift + b.first * g.stride[2], inside);
      }
    }
}

} // namespace sluice::SLUICE_LEVEL
