// Gradient of a convolution in its weights: dw[m][(c, tap)] = sum over (image, o) of
// dy[m][o] * x at o shifted by the tap. The sum runs over images and outputs as one
// sequence, in blocks of 256: one chain a block, blocks in order.

#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/WeightGradTile.h"
#include "kernels/cpu/WeightGradUnits.h"

namespace sluice::SLUICE_LEVEL {
namespace {

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
      : u(u), s(s), live(u.gather, u.col, u.cols), firstChannel(u.col / u.gather.taps()),
        channels((u.col + u.cols - 1) / u.gather.taps() + 1 - firstChannel),
        width(ceilDiv(u.rows, kTileCols) * kTileCols), sums(u.workspace),
        outputs(sums + u.cols * width), padded(outputs + gemm::kBlockK * width) {}

  void run() const {
    int64_t all[LiveColumns::kMost], shifts[LiveColumns::kMost];
    shiftsOfRows(u.gather, s, u.col % u.gather.taps(), u.cols, all);
    for (int64_t j = 0; j < live.count; ++j)
      shifts[j] = all[live.at[j]];
    for (int64_t q = 0, ready = 0; q < u.positions(); q += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, u.positions() - q);
      for (int64_t last = (q + kc - 1) / u.outSize; !s.inPlace && ready <= last; ++ready)
        copyWithPads<S>(u.gather, s, channelsOf(ready), channels, padded + slot(ready));
      transposeOutputs(q, kc);
      Segment segments[gemm::kBlockK];
      int64_t count = cutSegments(q, kc, segments);
      for (int64_t i = 0; i < width; i += kTileCols)
        for (int64_t j = 0; j < live.count; j += kGradRows)
          block(i, j, shifts + j, segments, count, q > 0);
    }
    u.writeTransposed(sums, width, live);
  }

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
      kGradTiles[least(kGradRows, live.count - j)](
          x, shifts, u.g.stride[2], segments, count, dy + c, sums + j * width + i + c,
          width, accumulate);
  }

  const Unit<S> &u;
  const ShiftedImage &s;
  LiveColumns live;
  int64_t firstChannel, channels, width;
  float *sums, *outputs, *padded;
};

template <typename S> void runUnit(const Unit<S> &u) {
  if (u.isEmpty())
    return u.writeZeros();
  if (!u.shifted)
    return GatheredProduct<S>(u).run();
  ShiftedImage s = paddedImage(u.g, S::kFormat == format::kF32);
  ShiftedProduct<S>(u, s).run();
}

} // namespace

void convWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t) {
  auto p = readParams<ConvWeightGradParams>(params);
  FlushDenormals guard(usesPairs(p.xType, p.dyType));
  byFormat(p.xType, [&]<typename S>(S) {
    forEachUnit<S>(p, buffers, begin, end, [](const Unit<S> &u) { runUnit(u); });
  });
}

} // namespace sluice::SLUICE_LEVEL
