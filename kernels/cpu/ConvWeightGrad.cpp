// Gradient of a convolution in its weights: dw[m][(c, tap)] = sum over (image, o) of
// dy[m][o] * x at o shifted by the tap. The sum runs over images and outputs as one
// sequence, in blocks of 256: one chain a block, blocks in order.

#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/WeightGradTile.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

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

/// A product of packed outputs and gathered inputs, for images too large to keep with
/// pads.
template <typename S> class GatheredProduct {
public:
  explicit GatheredProduct(const Unit<S> &u)
      : u(u), packedB(u.workspace), gathered(packedB + gemm::kBlockK * kTileCols),
        packedA(gathered + gemm::kBlockK * kTileCols) {}

  void run() const {
    for (int64_t q = 0; q < u.positions(); q += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, u.positions() - q);
      packOutputs(q, kc);
      for (int64_t j = 0; j < u.cols; j += kTileCols) {
        int64_t width = least(kTileCols, u.cols - j);
        packInputs(q, kc, u.col + j, width);
        for (int64_t i = 0; i < u.rows; i += kTileRows)
          tile(least(kTileRows, u.rows - i), width, kc, packedA + i * kc, packedB,
               kTileCols, u.dw + (u.row + i) * u.dwRow + u.col + j, u.dwRow, 1, q > 0);
      }
    }
  }

private:
  void packOutputs(int64_t q, int64_t kc) const {
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      Operand from = u.dy.at((image * u.g.m + u.row) * u.outSize + o);
      for (int64_t i = 0; i < u.rows; i += kTileRows)
        packPanelOf<kTileRows>(from.at(i * u.outSize), u.outSize, 1,
                               least(kTileRows, u.rows - i), count,
                               packedA + i * kc + at * kTileRows);
    });
  }

  void packInputs(int64_t q, int64_t kc, int64_t first, int64_t width) const {
    Run runs[gemm::kBlockK];
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      int64_t n = cutRuns(u.gather, o, count, runs);
      RowCursor<S> cursor(u.gather, u.x + image * u.g.c * u.inSize, first);
      for (int64_t j = 0; j < width; ++j, cursor.next())
        gatherRow<S>(u.gather, cursor.plane, cursor.offset, runs, n,
                     gathered + j * gemm::kBlockK + at);
    });
    packPanel<kTileCols>(gathered, gemm::kBlockK, 1, width, kc, packedB);
  }

  const Unit<S> &u;
  float *packedB, *gathered, *packedA;
};

/// dw transposed, [cols][rows], from x in place and dy transposed.
template <typename S> class ShiftedProduct {
public:
  ShiftedProduct(const Unit<S> &u, const ShiftedImage &s)
      : u(u), s(s), firstChannel(u.col / u.gather.taps()),
        channels((u.col + u.cols - 1) / u.gather.taps() + 1 - firstChannel),
        width(ceilDiv(u.rows, kTileCols) * kTileCols), sums(u.workspace),
        outputs(sums + u.cols * width), padded(outputs + gemm::kBlockK * width) {}

  void run() const {
    int64_t shifts[kMaxCols];
    shiftsOfRows(u.gather, s, u.col % u.gather.taps(), u.cols, shifts);
    for (int64_t q = 0, ready = 0; q < u.positions(); q += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, u.positions() - q);
      for (int64_t last = (q + kc - 1) / u.outSize; !s.inPlace && ready <= last; ++ready)
        copyWithPads<S>(u.gather, s, channelsOf(ready), channels, padded + slot(ready));
      transposeOutputs(q, kc);
      Segment segments[gemm::kBlockK];
      int64_t count = cutSegments(q, kc, segments);
      for (int64_t i = 0; i < width; i += kTileCols)
        for (int64_t j = 0; j < u.cols; j += kGradRows)
          block(i, j, shifts + j, segments, count, q > 0);
    }
    for (int64_t i = 0; i < u.rows; ++i)
      for (int64_t j = 0; j < u.cols; ++j)
        u.dw[(u.row + i) * u.dwRow + u.col + j] = sums[j * width + i];
  }

  static constexpr int64_t kMaxCols = 256;

private:
  const typename S::Element *channelsOf(int64_t image) const {
    return u.x + (image * u.g.c + firstChannel) * u.inSize;
  }
  /// Where an image with pads stands among as many as a block may touch.
  int64_t slot(int64_t image) const {
    return image % imagesPerBlock(u.outSize) * channels * s.plane();
  }
  static int64_t imagesPerBlock(int64_t outSize) {
    return (gemm::kBlockK - 2 + outSize) / outSize + 1;
  }

  /// outputs[panel of 32 channels][position][32].
  void transposeOutputs(int64_t q, int64_t kc) const {
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      Operand from = u.dy.at((image * u.g.m + u.row) * u.outSize + o);
      for (int64_t i = 0; i < u.rows; i += kTileCols)
        packPanelOf<kTileCols>(from.at(i * u.outSize), u.outSize, 1,
                               least(kTileCols, u.rows - i), count,
                               outputs + i * gemm::kBlockK + at * kTileCols);
    });
  }

  int64_t cutSegments(int64_t q, int64_t kc, Segment *segments) const {
    int64_t n = 0;
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t) {
      int64_t base = s.inPlace ? channelsOf(image) - u.x : slot(image);
      for (int64_t end = o + count; o < end;) {
        int64_t run = least(end - o, u.g.out[2] - o % u.g.out[2]);
        segments[n++] = {base + paddedOffset(u.g, s, o), run};
        o += run;
      }
    });
    return n;
  }

  void block(int64_t i, int64_t j, const int64_t *shifts, const Segment *segments,
             int64_t count, bool accumulate) const {
    const float *x = padded, *dy = outputs + i * gemm::kBlockK;
    if constexpr (S::kFormat == format::kF32)
      x = s.inPlace ? u.x : padded;
    for (int64_t c = 0; c < kTileCols; c += kRegisterCols)
      kGradTiles[least(kGradRows, u.cols - j)](x, shifts, u.g.stride[2], segments, count,
                                               dy + c, sums + j * width + i + c, width,
                                               accumulate);
  }

  const Unit<S> &u;
  const ShiftedImage &s;
  int64_t firstChannel, channels, width;
  float *sums, *outputs, *padded;
};

template <typename S> void runUnit(const Unit<S> &u) {
  if (u.positions() == 0 || u.cols == 0) {
    for (int64_t i = 0; i < u.rows; ++i)
      zeroFloats(u.dw + (u.row + i) * u.dwRow + u.col, u.cols);
    return;
  }
  if (!u.shifted)
    return GatheredProduct<S>(u).run();
  ShiftedImage s = paddedImage(u.g, S::kFormat == format::kF32);
  ShiftedProduct<S>(u, s).run();
}

template <typename S>
void runUnits(const ConvWeightGradParams &p, void *const *buffers, int64_t begin,
              int64_t end) {
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
    runUnit<S>({g, gather, x + (image * g.c + group * cg) * inSize,
                dy.at((image * g.m + group * mg) * outSize),
                least(p.sliceImages, g.n - image), outSize, inSize, row,
                least(p.unitRows, mg - row), col, least(p.unitCols, cols - col), dw,
                p.tiles ? p.unitCols : cols, workspace, shifted});
  }
}

} // namespace

void convWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t) {
  auto p = readParams<ConvWeightGradParams>(params);
  byFormat(p.xType, [&]<typename S>(S) { runUnits<S>(p, buffers, begin, end); });
}

} // namespace sluice::SLUICE_LEVEL
