// Matrix products, summed in f32. Compiled once per feature level.
//
// A block of up to 288 rows of A is packed per 256 steps of k and stays in L2; panels of
// 32 columns of B (packed ahead, packed here, or read in place) pass through L1 (Goto and
// van de Geijn 2008, without the outermost loop over columns: C is read and written once
// per 256 steps, 64 flops a byte).

#include "kernels/cpu/GemmWalk.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Pack.h"

namespace sluice::SLUICE_LEVEL {
namespace {

struct Matrix {
  Operand data;
  int64_t row, col;
};

struct Target {
  float *data;
  int64_t row, col;
};

/// B by panels of 32 columns, either packed ahead ([panel][k][32]) or strided.
struct PanelsOfB {
  Matrix b;            ///< row: stride of k
  const float *packed; ///< null: take `b`
  int64_t k;           ///< length of packed panels
};

/// Panels of this few rows of A do not repay packing B, where it is f32.
constexpr int64_t kDirectRows = 2 * kTileRows;

/// C[rows][cols] with rows <= 288.
void multiplyBlock(int64_t rows, int64_t cols, int64_t k, Matrix a, const PanelsOfB &b,
                   Target c, bool accumulate, float *workspace) {
  if (k == 0 && !accumulate)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        c.data[i * c.row + j * c.col] = 0;
  float *packedA = workspace + gemm::kBlockK * kTileCols;
  for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK) {
    int64_t kc = least(gemm::kBlockK, k - k0);
    packRows(a.data.at(k0 * a.col), a.row, a.col, rows, kc, packedA);
    for (int64_t j = 0; j < cols; j += kTileCols) {
      int64_t width = least(kTileCols, cols - j);
      const float *panel = workspace;
      int64_t stride = kTileCols;
      Operand from = b.b.data.at(k0 * b.b.row + j * b.b.col);
      if (b.packed) {
        panel = b.packed + (j * b.k + k0 * kTileCols);
      } else if (from.type == format::kF32 && b.b.col == 1 && width == kTileCols &&
                 rows <= kDirectRows) {
        panel = from.as<F32>();
        stride = b.b.row;
      } else {
        packPanelOf<kTileCols>(from, b.b.col, b.b.row, width, kc, workspace);
      }
      for (int64_t i = 0; i < rows; i += kTileRows)
        tile(least(kTileRows, rows - i), width, kc, packedA + i * kc, panel, stride,
             c.data + i * c.row + j * c.col, c.row, c.col, accumulate || k0 > 0);
    }
  }
}

/// C of any format, strides in its elements.
struct Destination {
  Result data;
  int64_t row, col;
};

void widenBlock(const Destination &c, int64_t rows, int64_t cols, float *to) {
  byFormat(c.data.type, [&]<typename S>(S) {
    const typename S::Element *from = c.data.as<S>();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        to[i * cols + j] = S::load1(from + i * c.row + j * c.col);
  });
}

void narrowBlock(const float *from, int64_t rows, int64_t cols, const Destination &c) {
  byFormat(c.data.type, [&]<typename S>(S) {
    typename S::Element *to = c.data.as<S>();
    for (int64_t i = 0; i < rows; ++i, from += cols) {
      if (c.col == 1)
        narrow<S>(from, to + i * c.row, cols);
      else
        for (int64_t j = 0; j < cols; ++j)
          S::store1(to + i * c.row + j * c.col, from[j]);
    }
  });
}

/// multiplyBlock for any C. One of 16 bits is summed in f32 in the workspace, 512 columns
/// at a time, and rounded when its sums are complete.
void multiplyInto(int64_t rows, int64_t cols, int64_t k, Matrix a, const PanelsOfB &b,
                  Destination c, bool accumulate, float *workspace,
                  int64_t resultFloats) {
  if (c.data.type == format::kF32)
    return multiplyBlock(rows, cols, k, a, b, {c.data.as<F32>(), c.row, c.col},
                         accumulate, workspace);
  for (int64_t j = 0; j < cols; j += gemm::kResultCols) {
    int64_t width = least(gemm::kResultCols, cols - j);
    PanelsOfB panels = b;
    if (b.packed)
      panels.packed += j * b.k;
    else
      panels.b.data = b.b.data.at(j * b.b.col);
    Destination part{c.data.at(j * c.col), c.row, c.col};
    if (accumulate)
      widenBlock(part, rows, width, workspace);
    multiplyBlock(rows, width, k, a, panels, {workspace, width, 1}, accumulate,
                  workspace + resultFloats);
    narrowBlock(workspace, rows, width, part);
  }
}

/// With a handful of columns most of a tile would be idle: computes the transpose
/// instead.
bool isSkinny(int64_t m, int64_t n) { return n < 8 && m >= kTileCols; }

/// Operands of a product. `packed`: B is the packed one.
struct Buffers {
  Operand a, b;
  Result c;
  bool packed;
  float *workspace;
};

/// Rows [first, last) of the flattened (b0, b1, m) and columns [j0, j1).
void multiplyRows(const GemmParams &p, const Buffers &to, int64_t first, int64_t last,
                  int64_t j0, int64_t j1) {
  if (p.n == 0)
    return;
  int64_t resultFloats = gemmResultFloats(p.m, p.n, p.cType);
  for (int64_t r = first; r < last;) {
    int64_t batch = r / p.m, i = r % p.m, b0 = batch / p.batch1, b1 = batch % p.batch1;
    int64_t rows = least(p.m - i, last - r);
    Operand aRows = to.a.at(b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow);
    Operand matrix = to.b.at(b0 * p.bBatch0 + b1 * p.bBatch1);
    Result c = to.c.at(b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j0);
    if (!to.packed && isSkinny(p.m, p.n)) {
      PanelsOfB columns{{aRows, p.aCol, p.aRow}, nullptr, 0};
      multiplyInto(j1 - j0, rows, p.k, {matrix.at(j0 * p.bCol), p.bCol, p.bRow}, columns,
                   {c, 1, p.cRow}, p.accumulate, to.workspace, resultFloats);
    } else {
      rows = least(rows, gemm::kBlockRows);
      PanelsOfB panels{{matrix.at(j0 * p.bCol), p.bRow, p.bCol}, nullptr, p.k};
      if (to.packed)
        panels.packed = matrix.as<F32>() + j0 * p.k; // j0 is a multiple of 32
      multiplyInto(rows, j1 - j0, p.k, {aRows, p.aRow, p.aCol}, panels, {c, p.cRow, 1},
                   p.accumulate, to.workspace, resultFloats);
    }
    r += rows;
  }
}

void multiply(const GemmParams &p, bool packed, void *const *buffers, int64_t begin,
              int64_t end) {
  Buffers to{{buffers[0], p.aType},
             {buffers[1], packed ? format::kF32 : p.bType},
             {buffers[2], p.cType},
             packed,
             static_cast<float *>(buffers[3])};
  walkUnits(p, begin, end, [&](int64_t first, int64_t last, int64_t j0, int64_t j1) {
    multiplyRows(p, to, first, last, j0, j1);
  });
}

} // namespace

void gemm(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
          int64_t) {
  multiply(readParams<GemmParams>(params), false, buffers, begin, end);
}

void gemmPacked(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t) {
  multiply(readParams<GemmParams>(params), true, buffers, begin, end);
}

void gemmPackB(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  auto p = readParams<GemmPackBParams>(params);
  int64_t panels = ceilDiv(p.n, kTileCols);
  if (p.k == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t batch = u / panels, j = u % panels * kTileCols;
    Operand b{buffers[0], p.bType};
    packPanelOf<kTileCols>(
        b.at(batch / p.batch1 * p.bBatch0 + batch % p.batch1 * p.bBatch1 + j * p.bCol),
        p.bCol, p.bRow, least(kTileCols, p.n - j), p.k,
        static_cast<float *>(buffers[1]) + u * p.k * kTileCols);
  }
}

void gemmSplitK(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t) {
  auto p = readParams<GemmSplitKParams>(params);
  walkSlices(p, begin, end,
             [&](const GemmParams &part, int64_t slice, int64_t first, int64_t last,
                 int64_t j0, int64_t j1) {
               int64_t k0 = slice * p.sliceK;
               Buffers to{Operand{buffers[0], p.aType}.at(k0 * p.aCol),
                          Operand{buffers[1], p.bType}.at(k0 * p.bRow),
                          Result{buffers[2], format::kF32}.at(slice * p.m * p.n), false,
                          static_cast<float *>(buffers[3])};
               multiplyRows(part, to, first, last, j0, j1);
             });
}

template <typename S>
static void sumRows(const SumSlicesParams &p, void *const *buffers, int64_t begin,
                    int64_t end) {
  auto *from = static_cast<const float *>(buffers[0]);
  int64_t size = p.rows * p.cols;
  if (size == 0)
    return;
  for (int64_t r = begin * p.unitRows; r < least(end * p.unitRows, p.rows); ++r) {
    auto *c = static_cast<typename S::Element *>(buffers[1]) + r * p.cRow;
    for (int64_t j = 0; j < p.cols; ++j) {
      const float *x = from + r * p.cols + j;
      float sum = p.slices ? x[0] : 0;
      for (int64_t s = 1; s < p.slices; ++s)
        sum += x[s * size];
      S::store1(c + j, p.accumulate ? S::load1(c + j) + sum : sum);
    }
  }
}

void sumSlices(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t) {
  auto p = readParams<SumSlicesParams>(params);
  byFormat(p.cType, [&]<typename S>(S) { sumRows<S>(p, buffers, begin, end); });
}

} // namespace sluice::SLUICE_LEVEL
