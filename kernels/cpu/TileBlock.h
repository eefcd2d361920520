#pragma once
// Blocks of up to 32 x 32 of C on a unit of tiles: 2 x 2 tiles of C, so that each tile of
// A and B that is loaded is used twice.
//
// The products of a block hide the end of the block before it: its tiles are stored
// within the first step of k, and what is not written as it is stored (other formats,
// edges) is converted during the others.

#include "kernels/cpu/PackPairs.h"
#if defined(__AMX_BF16__)
#include "kernels/cpu/AmxUnit.h"
#else
#include "kernels/cpu/EmulatedUnit.h"
#endif

namespace sluice::SLUICE_LEVEL {

#if defined(__AMX_BF16__)
using TileUnit = AmxUnit;
#else
using TileUnit = EmulatedUnit;
#endif

#define SLUICE_TILE_STEP inline __attribute__((always_inline))

constexpr int64_t kBlock = 2 * kUnitRows; ///< rows and columns of a block

/// A block's place in C, or in sums that are not complete.
struct BlockOfC {
  Result data;
  int64_t row; ///< elements between rows
  int64_t rows, cols;

  /// Whether whole tiles may be stored to it.
  bool isWhole() const {
    return data.type == format::kF32 && rows % kUnitRows == 0 && cols % kUnitCols == 0;
  }
};

/// Operands of a block: A by rows (the next 16 of them `aNext` elements on), B by pairs
/// of steps, the last tile of them apart where the panel ends within it.
struct BlockOperands {
  const uint16_t *a;
  int64_t aNext;
  const uint16_t *b, *lastOfB;
  int64_t steps;
  int64_t aRow = 64;             ///< bytes between rows of A
  int64_t aStep = kTileElements; ///< elements between tiles of a row
  int64_t bRow = 4 * kPanelCols; ///< bytes between pairs of B
};

/// Memory that is asked for ahead of its use.
struct Ahead {
  const uint8_t *next, *end;
  int64_t bytesPerStep;
};

class TileBlocks {
public:
  /// 32 x 32 floats each.
  static constexpr int64_t kScratchBytes = 2 * kBlock * kBlock * 4;

  explicit TileBlocks(float *scratch) : sums(scratch), start(scratch + kBlock * kBlock) {}

  /// C = (startsFrom's values, or 0) + A * B, complete after finish().
  void multiply(const BlockOperands &x, const BlockOfC *startsFrom, const BlockOfC &c,
                Ahead &ahead) {
    bool tall = c.rows > kUnitRows, wide = c.cols > kUnitCols;
    if (tall && wide)
      run<2, 2>(x, startsFrom, c, ahead);
    else if (tall)
      run<2, 1>(x, startsFrom, c, ahead);
    else if (wide)
      run<1, 2>(x, startsFrom, c, ahead);
    else
      run<1, 1>(x, startsFrom, c, ahead);
  }

  /// Writes what the last block left in tiles.
  void finish() {
    release<0>();
    release<1>();
    release<2>();
    release<3>();
    held = 0;
    convert(kBlock);
  }

private:
  /// Tile t of 2 x 2 in a block of floats.
  template <int T> static float *place(float *block, int64_t row) {
    return block + T / 2 * kUnitRows * row + T % 2 * kUnitCols;
  }

  template <int T> SLUICE_TILE_STEP void release() {
    if (held & 1 << T)
      unit.store<T>(place<T>(to, toRow), toRow * 4);
  }

  template <int T> SLUICE_TILE_STEP void initialise(const float *from, int64_t row) {
    if (from)
      unit.load<T>(from + T / 2 * kUnitRows * row + T % 2 * kUnitCols, row * 4);
    else
      unit.zero<T>();
  }

  template <int Rows, int Cols>
  void run(const BlockOperands &x, const BlockOfC *startsFrom, const BlockOfC &c,
           Ahead &ahead) {
    int64_t row = kBlock;
    const float *from = startsFrom ? startOf(*startsFrom, row) : nullptr;
    const uint16_t *a = x.a, *b = x.steps > 1 ? x.b : x.lastOfB;
    unit.stream<4>(a, x.aRow);
    unit.load<6>(b, x.bRow);
    release<0>();
    initialise<0>(from, row);
    unit.multiply<0>();
    if constexpr (Cols == 2)
      unit.load<7>(b + 2 * kUnitCols, x.bRow);
    release<1>();
    if constexpr (Cols == 2) {
      initialise<1>(from, row);
      unit.multiply<1>();
    }
    if constexpr (Rows == 2)
      unit.stream<5>(a + x.aNext, x.aRow);
    release<2>();
    if constexpr (Rows == 2) {
      initialise<2>(from, row);
      unit.multiply<2>();
    }
    release<3>();
    if constexpr (Rows == 2 && Cols == 2) {
      initialise<3>(from, row);
      unit.multiply<3>();
    }
    fetch(ahead);
    for (int64_t s = 1; s < x.steps; ++s) {
      a += x.aStep;
      b = s + 1 < x.steps ? b + kUnitK / 4 * x.bRow : x.lastOfB;
      step<Rows, Cols>(x, a, b);
      fetch(ahead);
      convert(ceilDiv(kBlock, x.steps - 1));
    }
    convert(kBlock);
    hold(c, Rows == 2 ? (Cols == 2 ? 15 : 5) : (Cols == 2 ? 3 : 1));
  }

  template <int Rows, int Cols>
  SLUICE_TILE_STEP void step(const BlockOperands &x, const uint16_t *a,
                             const uint16_t *b) {
    unit.stream<4>(a, x.aRow);
    unit.load<6>(b, x.bRow);
    unit.multiply<0>();
    if constexpr (Cols == 2) {
      unit.load<7>(b + 2 * kUnitCols, x.bRow);
      unit.multiply<1>();
    }
    if constexpr (Rows == 2) {
      unit.stream<5>(a + x.aNext, x.aRow);
      unit.multiply<2>();
      if constexpr (Cols == 2)
        unit.multiply<3>();
    }
  }

  SLUICE_TILE_STEP void fetch(Ahead &ahead) {
    for (int64_t n = 0; n < ahead.bytesPerStep && ahead.next < ahead.end; n += 64) {
      _mm_prefetch(reinterpret_cast<const char *>(ahead.next), _MM_HINT_T1);
      ahead.next += 64;
    }
  }

  /// Values of C that whole tiles may be loaded from; zeros beyond its edges.
  const float *startOf(const BlockOfC &c, int64_t &row) {
    if (c.isWhole()) {
      row = c.row;
      return c.data.as<F32>();
    }
    std::memset(start, 0, kBlock * kBlock * sizeof *start);
    byFormat(c.data.type, [&]<typename S>(S) {
      for (int64_t i = 0; i < c.rows; ++i)
        widen<S>(c.data.as<S>() + i * c.row, start + i * kBlock, c.cols);
    });
    row = kBlock;
    return start;
  }

  void hold(const BlockOfC &c, int tiles) {
    held = tiles;
    bool direct = c.isWhole();
    to = direct ? c.data.as<F32>() : sums;
    toRow = direct ? c.row : kBlock;
    pending = c;
    converted = direct ? c.rows : 0;
  }

  /// Some rows of the block that is stored but not converted.
  SLUICE_TILE_STEP void convert(int64_t rows) {
    if (converted >= pending.rows)
      return;
    int64_t until = least(pending.rows, converted + rows);
    for (; converted < until; ++converted)
      storeFloats(sums + converted * kBlock, pending.data.at(converted * pending.row),
                  pending.cols);
  }

  TileUnit unit;
  float *sums, *start;
  int held = 0; ///< tiles with sums that are not stored, by bits
  float *to = nullptr;
  int64_t toRow = 0;
  BlockOfC pending{{nullptr, format::kF32}, 0, 0, 0};
  int64_t converted = 0; ///< rows of `pending`
};

} // namespace sluice::SLUICE_LEVEL
