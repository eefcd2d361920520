#pragma once
// The register tile of the weight gradient: 6 rows (channel, kernel position) by 32
// output channels. Rows of x are read in place, one broadcast element a step, from images
// stored with their pads: nothing is gathered or transposed.

#include "kernels/cpu/ShiftedImage.h"

namespace sluice::SLUICE_LEVEL {

constexpr int kGradRows = 6;

/// Consecutive outputs of one row: where x starts (for a row of no shift) and how many
/// there are. Their rows of dy follow one another.
struct Segment {
  int64_t x, count;
};

/// c[Rows][kRegisterCols] = or += sum over segments of x[shift of row + step * i] *
/// dy[i][column].
template <int Rows>
static void gradTile(const float *x, const int64_t *shifts, int64_t step,
                     const Segment *segments, int64_t count, const float *dy, float *c,
                     int64_t cRow, bool accumulate) {
  RegisterSums<Rows> sums;
  for (const Segment *s = segments; s != segments + count; ++s) {
    const float *row[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
      row[r] = x + s->x + shifts[r];
    const float *last = dy + s->count * kTileCols;
    for (int64_t at = 0; dy != last; at += step, dy += kTileCols)
      sums.step(
          dy, [&](int r) __attribute__((always_inline)) { return splat(row[r][at]); },
          fma3);
  }
  sums.writeTo(c, cRow, accumulate);
}

using GradTile = void (*)(const float *, const int64_t *, int64_t, const Segment *,
                          int64_t, const float *, float *, int64_t, bool);
constexpr GradTile kGradTiles[] = {nullptr,     gradTile<1>, gradTile<2>, gradTile<3>,
                                   gradTile<4>, gradTile<5>, gradTile<6>};

/// Plane size with pads such that every position of the kernel reads inside, for any
/// stride. Only x of f32 can be read in place.
static inline ShiftedImage paddedImage(const ConvGeometry &g, bool isF32) {
  ShiftedImage s{};
  s.inPlace = isF32;
  for (int d = 0; d < 3; ++d) {
    s.low[d] = g.pad[d];
    s.size[d] = (g.out[d] - 1) * g.stride[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
    s.inPlace &= g.pad[d] == 0 && s.size[d] <= g.in[d];
  }
  for (int d = 0; d < 3 && s.inPlace; ++d)
    s.size[d] = g.in[d];
  return s;
}

/// Offset of output o (within its plane) in a padded plane, for the kernel position 0.
SLUICE_INLINE int64_t paddedOffset(const ConvGeometry &g, const ShiftedImage &s,
                                   int64_t o) {
  int64_t o2 = o % g.out[2], o1 = o / g.out[2] % g.out[1], o0 = o / g.out[2] / g.out[1];
  return ((o0 * g.stride[0]) * s.size[1] + o1 * g.stride[1]) * s.size[2] +
         o2 * g.stride[2];
}

} // namespace sluice::SLUICE_LEVEL
