#pragma once
// The loops of products on register tiles, for operands packed in any form.
//
// A block of up to 288 rows of A is packed per 256 steps of k and stays in L2; panels of
// 32 columns of B (packed ahead, packed here, or read in place) pass through L1 (Goto and
// van de Geijn 2008, without the outermost loop over columns: C is read and written once
// per 256 steps, 64 flops a byte).

#include "kernels/cpu/GemmWalk.h"
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

/// B by panels of 32 columns, either packed ahead (k * 32 floats each) or strided.
struct PanelsOfB {
  Matrix b;            ///< row: stride of k
  const float *packed; ///< null: take `b`
  int64_t k;           ///< length of packed panels
};

/// How packed operands hold k, and the tile that multiplies them: a step is one of k.
struct Singles {
  static int64_t steps(int64_t k) { return k; }
  static void packA(Operand a, int64_t row, int64_t col, int64_t rows, int64_t k,
                    float *to) {
    packRows(a, row, col, rows, k, to);
  }
  static void packB(Operand b, int64_t row, int64_t col, int64_t cols, int64_t k,
                    float *to) {
    packPanelOf<kTileCols>(b, row, col, cols, k, to);
  }
  static constexpr const RegisterTile *kTiles = kRegisterTiles;
  /// Tiles that read rows of B where they lie, and of which B.
  static constexpr const RegisterTile *kTilesInPlace = kRegisterTiles;
  static bool readsInPlace(const Operand &b) {
    return b.type == format::kF32 && !b.coded;
  }
};

/// Panels of this few rows of A do not repay packing B.
constexpr int64_t kDirectRows = 2 * kTileRows;

/// C[rows][cols] with rows <= 288.
template <typename Form>
void multiplyBlock(int64_t rows, int64_t cols, int64_t k, Matrix a, const PanelsOfB &b,
                   Target c, bool accumulate, float *workspace) {
  if (k == 0 && !accumulate)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        c.data[i * c.row + j * c.col] = 0;
  float *packedA = workspace + gemm::kBlockK * kTileCols;
  for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK) {
    int64_t kc = least(gemm::kBlockK, k - k0);
    Form::packA(a.data.at(k0 * a.col), a.row, a.col, rows, kc, packedA);
    for (int64_t j = 0; j < cols; j += kTileCols) {
      int64_t width = least(kTileCols, cols - j);
      const float *panel = workspace;
      int64_t stride = kTileCols;
      const RegisterTile *tiles = Form::kTiles;
      Operand from = b.b.data.at(k0 * b.b.row + j * b.b.col);
      if (b.packed) {
        panel = b.packed + (j * b.k + Form::steps(k0) * kTileCols);
      } else if (Form::readsInPlace(from) && b.b.col == 1 && width == kTileCols &&
                 rows <= kDirectRows) {
        panel = static_cast<const float *>(from.data);
        stride = b.b.row;
        tiles = Form::kTilesInPlace;
      } else {
        Form::packB(from, b.b.col, b.b.row, width, kc, workspace);
      }
      for (int64_t i = 0; i < rows; i += kTileRows)
        tile(least(kTileRows, rows - i), width, kc, packedA + i * Form::steps(kc), panel,
             stride, c.data + i * c.row + j * c.col, c.row, c.col, accumulate || k0 > 0,
             tiles);
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
template <typename Form>
void multiplyInto(int64_t rows, int64_t cols, int64_t k, Matrix a, const PanelsOfB &b,
                  Destination c, bool accumulate, float *workspace,
                  int64_t resultFloats) {
  if (c.data.type == format::kF32)
    return multiplyBlock<Form>(rows, cols, k, a, b, {c.data.as<F32>(), c.row, c.col},
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
    multiplyBlock<Form>(rows, width, k, a, panels, {workspace, width, 1}, accumulate,
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
template <typename Form>
void multiplyRows(const GemmParams &p, const Buffers &to, int64_t first, int64_t last,
                  int64_t j0, int64_t j1) {
  if (p.n == 0)
    return;
  int64_t resultFloats = gemmResultFloats(p.m, p.n, p.cType);
  int64_t shift = shiftOfTile(p, first, j0);
  for (int64_t r = first; r < last;) {
    int64_t batch = r / p.m, i = r % p.m, b0 = batch / p.batch1, b1 = batch % p.batch1;
    int64_t rows = least(p.m - i, last - r);
    Operand aRows = to.a.at(b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow);
    Operand matrix = to.b.at(b0 * p.bBatch0 + b1 * p.bBatch1);
    Result c = to.c.at(b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j0 + shift);
    if (!to.packed && isSkinny(p.m, p.n)) {
      PanelsOfB columns{{aRows, p.aCol, p.aRow}, nullptr, 0};
      multiplyInto<Form>(j1 - j0, rows, p.k, {matrix.at(j0 * p.bCol), p.bCol, p.bRow},
                         columns, {c, 1, p.cRow}, p.accumulate, to.workspace,
                         resultFloats);
    } else {
      rows = least(rows, gemm::kBlockRows);
      PanelsOfB panels{{matrix.at(j0 * p.bCol), p.bRow, p.bCol}, nullptr, p.k};
      if (to.packed)
        panels.packed = matrix.as<F32>() + j0 * p.k; // j0 is a multiple of 32
      multiplyInto<Form>(rows, j1 - j0, p.k, {aRows, p.aRow, p.aCol}, panels,
                         {c, p.cRow, 1}, p.accumulate, to.workspace, resultFloats);
    }
    r += rows;
  }
}

template <typename Form>
void multiply(const GemmParams &p, bool packed, void *const *buffers, int64_t begin,
              int64_t end) {
  ProductOperands operands(p, buffers);
  Operand b = packed ? Operand{buffers[1], format::kF32} : operands.b;
  Buffers to{operands.a,
             b,
             {operands.c, p.cType},
             packed,
             static_cast<float *>(operands.workspace)};
  walkUnits(p, begin, end, [&](int64_t first, int64_t last, int64_t j0, int64_t j1) {
    multiplyRows<Form>(p, to, first, last, j0, j1);
  });
}

/// The runs of k of gemm_splitk_f32.
template <typename Form>
void multiplySlices(const GemmSplitKParams &p, void *const *buffers, int64_t begin,
                    int64_t end) {
  ProductOperands operands(p, buffers);
  walkSlices(p, begin, end,
             [&](const GemmParams &part, int64_t slice, int64_t first, int64_t last,
                 int64_t j0, int64_t j1) {
               int64_t k0 = slice * p.sliceK;
               Buffers to{operands.a.at(k0 * p.aCol), operands.b.at(k0 * p.bRow),
                          Result{operands.c, format::kF32}.at(slice * p.m * p.n), false,
                          static_cast<float *>(operands.workspace)};
               multiplyRows<Form>(part, to, first, last, j0, j1);
             });
}

/// gemm_pack_b_f32: a panel takes the place of k * 32 floats.
template <typename Form>
void packPanels(const GemmPackBParams &p, void *const *buffers, int64_t begin,
                int64_t end) {
  int64_t panels = ceilDiv(p.n, kTileCols);
  if (p.k == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t batch = u / panels, j = u % panels * kTileCols;
    Operand b{buffers[0], p.bType};
    Form::packB(
        b.at(batch / p.batch1 * p.bBatch0 + batch % p.batch1 * p.bBatch1 + j * p.bCol),
        p.bCol, p.bRow, least(kTileCols, p.n - j), p.k,
        static_cast<float *>(buffers[1]) + u * p.k * kTileCols);
  }
}

} // namespace
} // namespace sluice::SLUICE_LEVEL
