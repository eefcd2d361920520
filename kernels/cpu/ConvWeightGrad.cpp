// Gradient of a convolution in its weights: dw[m][(c, tap)] = sum over (image, o) of
// dy[m][o] * x gathered. The sum runs over images and positions as one sequence, in
// blocks of 256.

#include "kernels/cpu/Im2col.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

struct Block {
  const ConvGeometry &g;
  const Gather &gather;
  const float *x, *dy; ///< first channel of the group, first image of the slice
  int64_t positions;   ///< images of the slice * outputs of a plane
  int64_t outSize, inSize;
  int64_t row, rows, col, cols; ///< of dw within the group
  float *dw;                    ///< of the group
  int64_t dwRow;
  float *packedA, *packedB, *gathered;

  void run() const {
    if (positions == 0)
      for (int64_t i = 0; i < rows; ++i)
        zeroFloats(dw + (row + i) * dwRow + col, cols);
    for (int64_t q = 0; q < positions; q += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, positions - q);
      packOutputs(q, kc);
      for (int64_t j = 0; j < cols; j += kTileCols) {
        int64_t width = least(kTileCols, cols - j);
        packInputs(q, kc, col + j, width);
        for (int64_t i = 0; i < rows; i += kTileRows)
          tile(least(kTileRows, rows - i), width, kc, packedA + i * kc, packedB,
               kTileCols, dw + (row + i) * dwRow + col + j, dwRow, 1, q > 0);
      }
    }
  }

private:
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

  void packOutputs(int64_t q, int64_t kc) const {
    forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      const float *from = dy + (image * g.m + row) * outSize + o;
      for (int64_t i = 0; i < rows; i += kTileRows)
        packPanel<kTileRows>(from + i * outSize, outSize, 1, least(kTileRows, rows - i),
                             count, packedA + i * kc + at * kTileRows);
    });
  }

  void packInputs(int64_t q, int64_t kc, int64_t first, int64_t width) const {
    Run runs[gemm::kBlockK];
    forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      int64_t n = cutRuns(gather, o, count, runs);
      RowCursor cursor(gather, x + image * g.c * inSize, first);
      for (int64_t j = 0; j < width; ++j, cursor.next())
        gatherRow(gather, cursor.plane, cursor.offset, runs, n,
                  gathered + j * gemm::kBlockK + at);
    });
    packPanel<kTileCols>(gathered, gemm::kBlockK, 1, width, kc, packedB);
  }
};

} // namespace

void convWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t) {
  auto p = readParams<ConvWeightGradParams>(params);
  const ConvGeometry &g = p.g;
  auto *x = static_cast<const float *>(buffers[0]),
       *dy = static_cast<const float *>(buffers[1]);
  auto *partial = static_cast<float *>(buffers[2]),
       *workspace = static_cast<float *>(buffers[3]);
  Gather gather = forwardGather(g);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, cols = cg * volume(g.kernel);
  int64_t inSize = volume(g.in), outSize = volume(g.out);
  int64_t rowBlocks = ceilDiv(mg, p.unitRows), colBlocks = ceilDiv(cols, p.unitCols);
  for (int64_t u = begin; u < end; ++u) {
    int64_t col = u % colBlocks * p.unitCols,
            row = u / colBlocks % rowBlocks * p.unitRows;
    int64_t group = u / colBlocks / rowBlocks % g.groups;
    int64_t slice = u / colBlocks / rowBlocks / g.groups, image = slice * p.sliceImages;
    int64_t images = least(p.sliceImages, g.n - image);
    Block{g,
          gather,
          x + (image * g.c + group * cg) * inSize,
          dy + (image * g.m + group * mg) * outSize,
          images * outSize,
          outSize,
          inSize,
          row,
          least(p.unitRows, mg - row),
          col,
          least(p.unitCols, cols - col),
          partial + (slice * g.m + group * mg) * cols,
          cols,
          workspace + 2 * gemm::kBlockK * kTileCols,
          workspace,
          workspace + gemm::kBlockK * kTileCols}
        .run();
  }
}

} // namespace sluice::SLUICE_LEVEL
