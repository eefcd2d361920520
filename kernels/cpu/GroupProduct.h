#pragma once
// The product behind a convolution and its gradient in x, for one group of channels.

#include "kernels/cpu/ShiftedImage.h"

namespace sluice::SLUICE_LEVEL {

/// Rows [first, last) of packed weights of one group, times the gathered columns, into
/// channel planes at `to` (plane of row `first`). `weights` is packed [panel][k][12]. The
/// workspace holds one panel of B, then `imageFloats` for planes with pads.
template <typename S> struct GroupProduct {
  const Gather *gather;
  const float *weights;
  int64_t k, first, last;
  const typename S::Element *source;
  float *to;
  int64_t planeSize;
  float *workspace;
  int64_t imageFloats;
  Images images = {};

  void run() const {
    int64_t columns = images.count * gather->gridSize();
    if (columns == 0)
      return;
    if (k == 0)
      for (int64_t j = 0; j < columns; j += kTileCols)
        writeZeros(j, least(kTileCols, columns - j));
    ShiftedImage s;
    // A short sum does not repay cutting idle columns out of its tiles.
    bool shifted = k > 0 && images.count == 1 &&
                   shiftedImage(*gather, S::kFormat == format::kF32, s) &&
                   (k >= 64 || s.allUsed);
    if (shifted && !s.inPlace)
      shifted = channelsPerBlock(gather->taps()) * s.plane() + kTileCols <= imageFloats ||
                fitsWhole(s);
    for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK) {
      if (shifted)
        shiftedBlock(s, k0);
      else
        for (int64_t j = 0; j < columns; j += kTileCols)
          panel(k0, j, least(kTileCols, columns - j));
    }
  }

private:
  /// All channels with pads fit, though there are fewer than 256 rows may touch.
  bool fitsWhole(const ShiftedImage &s) const {
    return k / gather->taps() * s.plane() + kTileCols <= imageFloats;
  }

  bool isContiguous() const {
    return images.count == 1 && gather->axis[0].targetStep == 1 &&
           gather->axis[1].targetStep == 1 && gather->axis[2].targetStep == 1;
  }

  /// Calls body(weights, rows, first plane) for the pieces of [first, last) within panels
  /// of 12.
  template <typename Body> void forEachPiece(int64_t k0, Body body) const {
    for (int64_t r = first; r < last;) {
      int64_t within = r % kTileRows, rows = least(kTileRows - within, last - r);
      body(weights + (r - within) * k + k0 * kTileRows + within, rows,
           to + (r - first) * planeSize);
      r += rows;
    }
  }

  void shiftedBlock(const ShiftedImage &s, int64_t k0) const {
    int64_t kc = least(gemm::kBlockK, k - k0), taps = gather->taps(), channel = k0 / taps;
    int64_t offsets[gemm::kBlockK];
    shiftsOfRows(*gather, s, k0 % taps, kc, offsets);
    auto *planes = source + channel * gather->sourceSize();
    float *padded = workspace + gemm::kBlockK * kTileCols;
    const float *image = padded;
    if constexpr (S::kFormat == format::kF32)
      image = s.inPlace ? planes : padded;
    if (!s.inPlace) {
      int64_t channels = (k0 + kc - 1) / taps - channel + 1;
      copyWithPads<S>(*gather, s, planes, channels, padded);
      zeroFloats(padded + channels * s.plane(), kTileCols);
    }
    for (int64_t j = 0; j < s.columns; j += kTileCols)
      shiftedPanel(s, k0, kc, image, offsets, j);
  }

  void shiftedPanel(const ShiftedImage &s, int64_t k0, int64_t kc, const float *image,
                    const int64_t *offsets, int64_t j) const {
    int64_t width = least(kTileCols, s.columns - j);
    // Where there is nothing to read behind the source, the last panel starts early and
    // repeats columns.
    int64_t early = s.inPlace ? kTileCols - width : 0;
    if (s.allUsed && width == kTileCols && isContiguous())
      return forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
        fullTileAt(rows, kc, a, image + j, offsets, plane + j, planeSize, k0 > 0);
      });
    Run runs[kTileCols];
    int64_t count = cutUsedRuns(*gather, s, j, width, runs);
    alignas(64) float block[kTileRows * kTileCols];
    forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
      fullTileAt(rows, kc, a, image + j - early, offsets, block, kTileCols, false);
      storeRuns(rows, block + early, plane, runs, count, k0 > 0);
    });
  }

  void panel(int64_t k0, int64_t j, int64_t width) const {
    int64_t kc = least(gemm::kBlockK, k - k0);
    Run runs[kTileCols];
    int64_t count = cutRuns(*gather, j, width, runs, images);
    RowCursor<S> row(*gather, source, k0);
    for (int64_t kk = 0; kk < kc; ++kk, row.next())
      gatherRow<S>(*gather, row.plane, row.offset, runs, count,
                   workspace + kk * kTileCols);
    if (width < kTileCols) // idle columns of a tile should not be slow denormals
      for (int64_t kk = 0; kk < kc; ++kk)
        zeroFloats(workspace + kk * kTileCols + width, kTileCols - width);
    if (isContiguous())
      return forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
        tile(rows, width, kc, a, workspace, kTileCols, plane + j, planeSize, 1, k0 > 0);
      });
    alignas(64) float block[kTileRows * kTileCols];
    forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
      tile(rows, kTileCols, kc, a, workspace, kTileCols, block, kTileCols, 1, false);
      storeRuns(rows, block, plane, runs, count, k0 > 0);
    });
  }

  void storeRuns(int64_t rows, const float *block, float *plane, const Run *runs,
                 int64_t count, bool accumulate) const {
    int64_t step = gather->axis[2].targetStep;
    for (int64_t i = 0; i < rows; ++i, plane += planeSize, block += kTileCols)
      for (const Run *r = runs; r != runs + count; ++r) {
        float *__restrict to = plane + r->target;
        const float *__restrict from = block + r->at;
        if (step == 1 && !accumulate)
          widen<F32>(from, to, r->count);
        else if (step == 1)
          for (int64_t j = 0; j < r->count; ++j)
            to[j] += from[j];
        else
          for (int64_t j = 0; j < r->count; ++j)
            to[j * step] = accumulate ? to[j * step] + from[j] : from[j];
      }
  }

  void writeZeros(int64_t j, int64_t width) const {
    Run runs[kTileCols];
    int64_t count = cutRuns(*gather, j, width, runs, images);
    for (int64_t r = first; r < last; ++r)
      for (const Run *run = runs; run != runs + count; ++run)
        for (int64_t i = 0; i < run->count; ++i)
          to[(r - first) * planeSize + run->target + i * gather->axis[2].targetStep] = 0;
  }
};

/// A piece of a grid, its results stored compactly.
struct Piece {
  int64_t first[3], count[3];

  Gather of(const Gather &whole) const {
    Gather g = whole;
    for (int d = 0; d < 3; ++d) {
      Axis &a = g.axis[d];
      a.first += first[d] * a.step;
      a.grid = g.targetSize[d] = count[d];
      a.targetFirst = 0, a.targetStep = 1;
    }
    return g;
  }
};

/// Rounds the sums of a piece of one channel into its plane.
template <typename T>
void narrowPiece(const Gather &g, const Piece &piece, const float *from,
                 typename T::Element *plane) {
  int64_t step = g.axis[2].targetStep, count = piece.count[2];
  bool wholeRows = step == 1 && g.axis[1].targetStep == 1 && count == g.targetSize[2];
  for (int64_t i0 = 0; wholeRows && i0 < piece.count[0];
       ++i0, from += count * piece.count[1])
    narrow<T>(from, plane + g.targetOf(piece.first[0] + i0, piece.first[1], 0),
              count * piece.count[1]);
  if (wholeRows)
    return;
  for (int64_t i0 = 0; i0 < piece.count[0]; ++i0)
    for (int64_t i1 = 0; i1 < piece.count[1]; ++i1, from += count) {
      auto *to =
          plane + g.targetOf(piece.first[0] + i0, piece.first[1] + i1, piece.first[2]);
      if (step == 1)
        narrow<T>(from, to, count);
      else
        for (int64_t j = 0; j < count; ++j)
          T::store1(to + j * step, from[j]);
    }
}

template <typename S>
void runRounded(GroupProduct<S> product, const Gather &whole, Result to,
                int64_t planeSize, int64_t sumFloats);

/// Several images at once where the sums of all of them fit, else one by one.
template <typename S>
void runRoundedImages(GroupProduct<S> product, const Gather &whole, Result to,
                      int64_t planeSize, int64_t sumFloats) {
  int64_t channels = product.last - product.first, columns = whole.gridSize();
  Images images = product.images;
  if (images.count * columns * channels > sumFloats) {
    product.images = {};
    for (int64_t i = 0; i < images.count; ++i, product.source += images.source)
      runRounded(product, whole, to.at(i * images.target), planeSize, sumFloats);
    return;
  }
  Piece all{{0, 0, 0}, {whole.axis[0].grid, whole.axis[1].grid, whole.axis[2].grid}};
  Gather gather = all.of(whole);
  product.gather = &gather;
  product.images.target = columns;
  product.planeSize = images.count * columns;
  product.run();
  byFormat(to.type, [&]<typename T>(T) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < images.count; ++i)
        narrowPiece<T>(whole, all, product.to + c * product.planeSize + i * columns,
                       to.at(c * planeSize + i * images.target).template as<T>());
  });
}

/// The product into planes of 16 bits at `to`: pieces of the grid whose f32 sums fit into
/// `sumFloats`, rounded when they are complete. product.to is where the sums are.
template <typename S>
void runRounded(GroupProduct<S> product, const Gather &whole, Result to,
                int64_t planeSize, int64_t sumFloats) {
  const Axis *a = whole.axis;
  int64_t channels = product.last - product.first;
  if (product.images.count > 1)
    return runRoundedImages(product, whole, to, planeSize, sumFloats);
  int64_t room = most(1, sumFloats / most(1, channels)), size[3];
  bool fits = whole.gridSize() <= room;
  size[0] = fits ? a[0].grid : 1;
  size[2] = fits ? a[2].grid : least(a[2].grid, room);
  int64_t rows = fits ? a[1].grid : most(1, room / most(1, size[2]));
  size[1] = ceilDiv(a[1].grid, most(1, ceilDiv(a[1].grid, most(1, rows)))); // even pieces
  Piece p;
  for (p.first[0] = 0; p.first[0] < a[0].grid; p.first[0] += size[0])
    for (p.first[1] = 0; p.first[1] < a[1].grid; p.first[1] += size[1])
      for (p.first[2] = 0; p.first[2] < a[2].grid; p.first[2] += size[2]) {
        for (int d = 0; d < 3; ++d)
          p.count[d] = least(size[d], a[d].grid - p.first[d]);
        Gather gather = p.of(whole);
        product.gather = &gather;
        product.planeSize = gather.gridSize();
        product.run();
        byFormat(to.type, [&]<typename T>(T) {
          for (int64_t c = 0; c < channels; ++c)
            narrowPiece<T>(whole, p, product.to + c * product.planeSize,
                           to.at(c * planeSize).template as<T>());
        });
      }
}

} // namespace sluice::SLUICE_LEVEL
