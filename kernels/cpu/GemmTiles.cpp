// Matrix products of bf16 on tiles, summed in f32. Compiled for AMX and, for tests, for a
// unit in plain code. Products of other formats are those of the level below.
//
// A block of up to 288 rows of A is packed into tiles, for all of k where the workspace
// allows, else for up to 512 steps at a time, and is streamed from L2; panels of 32
// columns of B pass through L1, each for all rows of the block (the order of loops of
// Gemm.cpp). Sums of a C of 16 bits that are not complete after a run of k wait in the
// workspace, 512 columns at a time.

#include "kernels/cpu/Codes.h"
#include "kernels/cpu/GemmWalk.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/TileBlock.h"

namespace sluice::SLUICE_LEVEL {
namespace {

constexpr int64_t kLongestRun = 512;   ///< steps of k where C is kept between runs
constexpr int64_t kLongestOnce = 1024; ///< steps of k of a single run

/// Operands of a product. `packed`: B is packed pairs.
struct Buffers {
  Operand a, b;
  Result c;
  bool packed;
  uint8_t *workspace;
  int64_t workerBytes;
};

/// How a block of rows is computed: `depth` steps of k in a run, a multiple of 32.
struct Blocking {
  int64_t rows, depth;
  bool once; ///< one run for all of k
};

int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

/// What a run takes of the workspace: scratch, a panel of B (packed: its last step), A.
int64_t runBytes(int64_t rows, int64_t depth, bool packed) {
  return TileBlocks::kScratchBytes + (packed ? kUnitK : depth) * kPanelCols * 2 +
         roundUp(rows, kUnitRows) * depth * 2;
}

Blocking blockingOf(int64_t rows, int64_t k, bool packed, int64_t bytes,
                    int64_t resultBytes) {
  rows = least(rows, gemm::kBlockRows);
  int64_t depth = roundUp(k, kUnitK);
  if (depth <= kLongestOnce && runBytes(rows, depth, packed) <= bytes)
    return {rows, depth, true};
  int64_t runs = ceilDiv(depth, kLongestRun);
  auto ofRuns = [&] { return roundUp(ceilDiv(k, runs), kUnitK); };
  while (ofRuns() > kUnitK && runBytes(rows, ofRuns(), packed) > bytes - resultBytes)
    ++runs;
  while (rows > kUnitRows && runBytes(rows, ofRuns(), packed) > bytes - resultBytes)
    rows = roundUp(rows, kUnitRows) - kUnitRows;
  return {rows, ofRuns(), false};
}

/// Rows of C from rows of A and a B: the loops over k, columns and rows.
class RowBlock {
public:
  RowBlock(const GemmParams &p, const Buffers &to, const Blocking &blocking)
      : p(p), packed(to.packed), blocking(blocking), blocks(at<float>(to.workspace, 0)) {
    int64_t used = TileBlocks::kScratchBytes;
    panel = at<uint16_t>(to.workspace, used);
    used += (packed ? kUnitK : blocking.depth) * kPanelCols * 2;
    tiles = at<uint16_t>(to.workspace, used);
    used += roundUp(blocking.rows, kUnitRows) * blocking.depth * 2;
    sums = at<float>(to.workspace, used);
  }

  /// C[rows][cols]; `b` is the first column's, in whole panels if it is packed.
  void multiply(int64_t rows, int64_t cols, Operand a, Operand b, Result c) {
    if (blocking.once || c.type == format::kF32)
      return overRuns(rows, cols, a, b, c, false);
    for (int64_t j = 0; j < cols; j += gemm::kResultCols)
      overRuns(rows, least(gemm::kResultCols, cols - j), a, columnsFrom(b, j), c.at(j),
               true);
  }

private:
  template <typename T> static T *at(uint8_t *workspace, int64_t bytes) {
    return reinterpret_cast<T *>(workspace + bytes);
  }

  /// Columns [j, ...) of B; a packed panel takes the place of k * 32 floats.
  Operand columnsFrom(Operand b, int64_t j) const {
    return b.at(packed ? 2 * j * p.k : j * p.bCol);
  }

  /// `keepsSums`: C has 16 bits and more than one run.
  void overRuns(int64_t rows, int64_t cols, Operand a, Operand b, Result c,
                bool keepsSums) {
    Result partial{sums, format::kF32};
    int64_t sumRow = roundUp(cols, kPanelCols);
    for (int64_t k0 = 0; k0 < p.k; k0 += blocking.depth) {
      int64_t depth = least(blocking.depth, p.k - k0);
      bool first = k0 == 0, last = k0 + depth == p.k;
      packA(rows, depth, a.at(k0 * p.aCol));
      Sweep s{depth, b, k0, {c, p.cRow}, {c, p.cRow}, first ? p.accumulate != 0 : true};
      if (keepsSums && !first)
        s.from = {partial, sumRow};
      if (keepsSums && !last)
        s.to = {partial, sumRow};
      overPanels(rows, cols, s);
    }
  }

  void packA(int64_t rows, int64_t depth, Operand a) {
    int64_t steps = ceilDiv(depth, kUnitK);
    auto pack = [&](Halves from, int64_t k, int64_t first, int64_t together) {
      for (int64_t i = 0; i < rows; i += kUnitRows)
        packTiles({from.data + i * from.row, from.row, from.col},
                  least(kUnitRows, rows - i), k, together,
                  tiles + (i * steps + first * kUnitRows) * kUnitK);
    };
    if (!a.coded)
      return pack({a.as<Bf16>(), p.aRow, p.aCol}, depth, 0, steps);
    static_assert(kPieceSteps == kUnitK);
    decodePieces<uint16_t>(
        a, p.aRow, p.aCol, rows, depth, [&](const Piece<uint16_t> &piece) {
          pack({piece.data, piece.row, piece.col}, piece.steps, piece.first / kUnitK, 1);
        });
  }

  void packB(Operand b, int64_t cols, int64_t depth, int64_t pairs) {
    if (!b.coded)
      return packPairs({b.as<Bf16>(), p.bCol, p.bRow}, cols, depth, pairs, panel);
    decodePieces<uint16_t>(
        b, p.bCol, p.bRow, cols, depth, [&](const Piece<uint16_t> &piece) {
          packPairs({piece.data, piece.row, piece.col}, cols, piece.steps, kUnitK / 2,
                    panel + piece.first * kPanelCols);
        });
  }

  struct Place {
    Result data;
    int64_t row;
    BlockOfC block(int64_t i, int64_t j, int64_t rows, int64_t cols) const {
      return {data.at(i * row + j), row, rows, cols};
    }
  };
  /// A run of k.
  struct Sweep {
    int64_t depth;
    Operand b;
    int64_t k0;
    Place from, to;
    bool adds; ///< to what `from` holds
  };

  const uint16_t *panelOf(const Sweep &s, int64_t j) const {
    return columnsFrom(s.b, j).at(s.k0 * kPanelCols).as<Bf16>();
  }

  void overPanels(int64_t rows, int64_t cols, const Sweep &s) {
    int64_t steps = ceilDiv(s.depth, kUnitK);
    for (int64_t j = 0; j < cols; j += kPanelCols) {
      int64_t width = least(kPanelCols, cols - j);
      BlockOperands x{nullptr, steps * kTileElements, panel,
                      panel + (steps - 1) * kStepElements, steps};
      Ahead ahead{nullptr, nullptr, 0};
      if (packed)
        usePacked(panelOf(s, j), s.depth, x);
      else
        packB(columnsFrom(s.b, j).at(s.k0 * p.bRow), width, s.depth,
              steps * (kUnitK / 2));
      if (packed && j + kPanelCols < cols)
        ahead =
            nextPanel(panelOf(s, j + kPanelCols), steps, s.depth, ceilDiv(rows, kBlock));
      for (int64_t i = 0; i < rows; i += kBlock) {
        int64_t height = least(kBlock, rows - i);
        x.a = tiles + i * steps * kUnitK;
        BlockOfC from = s.from.block(i, j, height, width);
        blocks.multiply(x, s.adds ? &from : nullptr, s.to.block(i, j, height, width),
                        ahead);
      }
    }
    blocks.finish();
  }

  /// A packed panel ends with its last pair; a step that lasts longer is copied.
  void usePacked(const uint16_t *from, int64_t depth, BlockOperands &x) {
    int64_t rest = depth % kUnitK, whole = depth / kUnitK;
    x.b = from;
    x.lastOfB = from + (x.steps - 1) * kStepElements;
    if (rest == 0)
      return;
    int64_t elements = (rest + 1) / 2 * 2 * kPanelCols;
    std::memset(panel, 0, kStepElements * sizeof *panel);
    std::memcpy(panel, from + whole * kStepElements, elements * sizeof *panel);
    x.lastOfB = panel;
  }

  static Ahead nextPanel(const uint16_t *from, int64_t steps, int64_t depth,
                         int64_t rowBlocks) {
    auto *bytes = reinterpret_cast<const uint8_t *>(from);
    return {bytes, bytes + depth * kPanelCols * 2,
            roundUp(ceilDiv(depth * kPanelCols * 2, steps * rowBlocks), 64)};
  }

  const GemmParams &p;
  bool packed;
  Blocking blocking;
  TileBlocks blocks;
  uint16_t *panel, *tiles;
  float *sums;
};

void fillZeros(int64_t rows, int64_t cols, Result c, int64_t cRow) {
  for (int64_t i = 0; i < rows; ++i)
    std::memset(c.at(i * cRow).data, 0, cols * formatBytes(c.type));
}

/// Rows [first, last) of the flattened (b0, b1, m) and columns [j0, j1).
void multiplyRows(const GemmParams &p, const Buffers &to, int64_t first, int64_t last,
                  int64_t j0, int64_t j1) {
  if (j0 >= j1 || first >= last)
    return;
  Blocking blocking = blockingOf(least(p.m, last - first), p.k, to.packed, to.workerBytes,
                                 4 * gemmResultFloats(p.m, p.n, p.cType));
  RowBlock block(p, to, blocking);
  int64_t shift = shiftOfTile(p, first, j0);
  for (int64_t r = first; r < last;) {
    int64_t batch = r / p.m, i = r % p.m, b0 = batch / p.batch1, b1 = batch % p.batch1;
    int64_t rows = least(blocking.rows, least(p.m - i, last - r));
    Result c = to.c.at(b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j0 + shift);
    // Batches of a packed B are counted in floats.
    int64_t matrix = (b0 * p.bBatch0 + b1 * p.bBatch1) * (to.packed ? 2 : 1);
    int64_t columns = to.packed ? 2 * j0 * p.k : j0 * p.bCol;
    if (p.k > 0)
      block.multiply(rows, j1 - j0, to.a.at(b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow),
                     to.b.at(matrix + columns), c);
    else if (!p.accumulate)
      fillZeros(rows, j1 - j0, c, p.cRow);
    r += rows;
  }
}

void multiply(const GemmParams &p, bool packed, void *const *buffers, int64_t begin,
              int64_t end) {
  ProductOperands operands(p, buffers);
  Buffers to{operands.a,
             operands.b,
             {operands.c, p.cType},
             packed,
             static_cast<uint8_t *>(operands.workspace),
             gemmWorkerBytes(p)};
  walkUnits(p, begin, end, [&](int64_t first, int64_t last, int64_t j0, int64_t j1) {
    multiplyRows(p, to, first, last, j0, j1);
  });
}

} // namespace

void gemm(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
          int64_t worker) {
  auto p = readParams<GemmParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemm(buffers, params, begin, end, worker);
  multiply(p, false, buffers, begin, end);
}

void gemmPacked(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t worker) {
  auto p = readParams<GemmParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmPacked(buffers, params, begin, end, worker);
  multiply(p, true, buffers, begin, end);
}

void gemmPackB(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t worker) {
  auto p = readParams<GemmPackBParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmPackB(buffers, params, begin, end, worker);
  int64_t panels = ceilDiv(p.n, kPanelCols);
  if (p.k == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t batch = u / panels, j = u % panels * kPanelCols;
    auto *b = static_cast<const uint16_t *>(buffers[0]) + batch / p.batch1 * p.bBatch0 +
              batch % p.batch1 * p.bBatch1 + j * p.bCol;
    packPairs({b, p.bCol, p.bRow}, least(kPanelCols, p.n - j), p.k, ceilDiv(p.k, 2),
              static_cast<uint16_t *>(buffers[1]) + 2 * u * p.k * kPanelCols);
  }
}

void gemmSplitK(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t worker) {
  auto p = readParams<GemmSplitKParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmSplitK(buffers, params, begin, end, worker);
  ProductOperands operands(p, buffers);
  walkSlices(p, begin, end,
             [&](const GemmParams &part, int64_t slice, int64_t first, int64_t last,
                 int64_t j0, int64_t j1) {
               int64_t k0 = slice * p.sliceK;
               Buffers to{operands.a.at(k0 * p.aCol),
                          operands.b.at(k0 * p.bRow),
                          Result{operands.c, format::kF32}.at(slice * p.m * p.n),
                          false,
                          static_cast<uint8_t *>(operands.workspace),
                          gemmSplitKWorkerBytes(p)};
               multiplyRows(part, to, first, last, j0, j1);
             });
}

} // namespace sluice::SLUICE_LEVEL
