#pragma once
// The units of the gradient of a convolution in its weights, whatever form their products
// take.

#include "kernels/cpu/Im2col.h"

namespace sluice::SLUICE_LEVEL {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Columns (channel, tap) of a unit that any result reaches: `at` columns into the unit,
/// and the tap counted among those that are left along every axis.
struct LiveColumns {
  static constexpr int64_t kMost = 256;
  int64_t count = 0;
  int64_t at[kMost], channel[kMost], tap[kMost];
  Gather gather; ///< of those taps

  LiveColumns(const Gather &all, int64_t col, int64_t cols) : gather(all) {
    int64_t low[3], taps = all.taps();
    for (int d = 0; d < 3; ++d) {
      gather.axis[d] = withoutIdleTaps(all.axis[d]);
      low[d] = (gather.axis[d].first - all.axis[d].first) / all.axis[d].tapStep;
    }
    for (int64_t i = 0; i < cols; ++i) {
      int64_t t = (col + i) % taps, place = 0;
      int64_t size1 = all.axis[1].taps, size2 = all.axis[2].taps;
      const int64_t part[3] = {t / size2 / size1, t / size2 % size1, t % size2};
      bool isLive = true;
      for (int d = 0; d < 3; ++d) {
        int64_t left = part[d] - low[d];
        isLive &= left >= 0 && left < gather.axis[d].taps;
        place = place * gather.axis[d].taps + left;
      }
      if (!isLive)
        continue;
      at[count] = i, channel[count] = (col + i) / taps - col / taps;
      tap[count++] = place;
    }
  }
};

/// Rows [row, row + rows) and columns [col, col + cols) of dw of one group, summed over
/// one slice of images.
template <typename S> struct Unit {
  const ConvGeometry &g;
  const Gather &gather;
  const typename S::Element *x; ///< first channel of the group, first image of the slice
  Operand dy;                   ///< the same
  int64_t images;
  int64_t outSize, inSize;
  int64_t row, rows, col, cols;
  float *dw; ///< of the group
  int64_t dwRow;
  float *workspace;
  bool shifted; ///< the workspace has room for images with pads

  int64_t positions() const { return images * outSize; }
  bool isEmpty() const { return positions() == 0 || cols == 0; }

  void writeZeros() const {
    for (int64_t i = 0; i < rows; ++i)
      zeroFloats(dw + (row + i) * dwRow + col, cols);
  }
  /// sums[live column][width] into dw, zeros in its other columns.
  void writeTransposed(const float *sums, int64_t width, const LiveColumns &live) const {
    if (live.count < cols)
      writeZeros();
    auto writeOne = [&](int64_t i, int64_t j) {
      dw[(row + i) * dwRow + col + live.at[j]] = sums[j * width + i];
    };
    for (int64_t j = 0; j < live.count;) {
      bool together = j + 8 <= live.count && live.at[j + 7] == live.at[j] + 7;
      int64_t i = 0, steps = together ? 8 : 1;
      for (; together && i + 8 <= rows; i += 8)
        transpose8x8(sums + j * width + i, width,
                     dw + (row + i) * dwRow + col + live.at[j], dwRow);
      for (; i < rows; ++i)
        for (int64_t s = 0; s < steps; ++s)
          writeOne(i, j + s);
      j += steps;
    }
  }

  /// Calls body(image, first output, count, offset in the block) for the images of
  /// positions [q, q + kc).
  template <typename Body> void forEachImage(int64_t q, int64_t kc, Body body) const {
    for (int64_t at = 0; at < kc;) {
      int64_t image = (q + at) / outSize, o = (q + at) % outSize;
      int64_t count = least(kc - at, outSize - o);
      body(image, o, count, at);
      at += count;
    }
  }
};

/// Calls run(unit) for the units [begin, end).
template <typename S, typename Run>
static void forEachUnit(const ConvWeightGradParams &p, void *const *buffers,
                        int64_t begin, int64_t end, Run run) {
  const ConvGeometry &g = p.g;
  auto *x = static_cast<const typename S::Element *>(buffers[0]);
  Operand dy{buffers[1], p.dyType};
  auto *partial = static_cast<float *>(buffers[2]),
       *workspace = static_cast<float *>(buffers[3]);
  Gather gather = forwardGather(g);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, cols = cg * volume(g.kernel);
  int64_t inSize = volume(g.in), outSize = volume(g.out);
  int64_t rowBlocks = ceilDiv(mg, p.unitRows), colBlocks = ceilDiv(cols, p.unitCols);
  bool shifted = convWeightGradImageFloats(p) >= 0;
  for (int64_t u = begin; u < end; ++u) {
    int64_t col = u % colBlocks * p.unitCols,
            row = u / colBlocks % rowBlocks * p.unitRows;
    int64_t group = u / colBlocks / rowBlocks % g.groups;
    int64_t slice = u / colBlocks / rowBlocks / g.groups, image = slice * p.sliceImages;
    float *dw = partial + (slice * g.m + group * mg) * cols;
    if (p.tiles) // the unit's element (row, col) lies at its begin
      dw = partial + u * p.unitRows * p.unitCols - row * p.unitCols - col;
    run(Unit<S>{g, gather, x + (image * g.c + group * cg) * inSize,
                dy.at((image * g.m + group * mg) * outSize),
                least(p.sliceImages, g.n - image), outSize, inSize, row,
                least(p.unitRows, mg - row), col, least(p.unitCols, cols - col), dw,
                p.tiles ? p.unitCols : cols, workspace, shifted});
  }
}

} // namespace sluice::SLUICE_LEVEL
