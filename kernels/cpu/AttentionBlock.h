#pragma once
// Blocks of scores: 64 keys as rows, 64 queries as lanes, so that the softmax over keys
// needs no sum across lanes, and each product has its keys, values or gradients as
// broadcast scalars. A row of every block is 64 words: floats, or pairs of bf16
// (AttentionPairs.h).

#include "kernels/cpu/AttentionEffects.h"

namespace sluice::SLUICE_LEVEL {

enum class Store { Set, Add, Scale };

/// C[rows][cols] (+)= A B over `depth` elements, which are Form::steps(depth) words of A
/// and of B. A(i, step) = a[step * aStep + i], or a[i * RowOfA + step] where RowOfA is
/// not 1. With Scale C is first multiplied by `factor` of its column.
struct BlockProduct {
  int64_t rows, cols, depth;
  const float *a;
  int64_t aStep;
  const float *b;
  int64_t bRow;
  float *c;
  int64_t cRow;
  const float *factor = nullptr;
};

/// One register tile, `Vectors` wide.
template <typename Form, int RowOfA, Store How, int Vectors> struct BlockTile {
  template <int Rows>
  static void run(int64_t depth, const float *a, int64_t aStep, const float *b,
                  int64_t bRow, float *c, int64_t cRow, const float *factor) {
    constexpr bool kOfRows = RowOfA != 1;
    RegisterSums<Rows, Vectors> sums;
    auto row = [&a](int i)
                   __attribute__((always_inline)) { return splat(a[i * RowOfA]); };
    for (int64_t n = Form::whole(depth); n > 0; --n, a += kOfRows ? 1 : aStep, b += bRow)
      sums.step(b, row, [](Vec x, Vec y, Vec sum) __attribute__((always_inline)) {
        return Form::fused(x, y, sum);
      });
    if (Form::whole(depth) < Form::steps(depth))
      sums.step(b, row, [](Vec x, Vec y, Vec sum) __attribute__((always_inline)) {
        return Form::last(x, y, sum);
      });
    sums.finish(c, cRow,
                [&](const float *to, int v, Vec sum) __attribute__((always_inline)) {
                  if constexpr (How == Store::Add)
                    return add(load(to), sum);
                  else if constexpr (How == Store::Scale)
                    return fma(load(to), load(factor + v * kLanes), sum);
                  else
                    return sum;
                });
  }
  using Tile = void (*)(int64_t, const float *, int64_t, const float *, int64_t, float *,
                        int64_t, const float *);
  static constexpr Tile kTiles[] = SLUICE_TILES(run);
};

/// Rows are dealt to tiles evenly: a last tile of few rows would wait for its sums.
template <typename Form, int RowOfA, Store How>
static void multiplyOnRegisters(const BlockProduct &p) {
  using Wide = BlockTile<Form, RowOfA, How, 2>;
  using Last = BlockTile<Form, RowOfA, How, 1>; // where a vector is left
  int64_t tiles = ceilDiv(p.rows, kRegisterRows);
  for (int64_t t = 0; t < tiles; ++t) {
    int64_t i = p.rows * t / tiles, end = p.rows * (t + 1) / tiles;
    for (int64_t j = 0; j < p.cols; j += kRegisterCols) {
      auto tile = (p.cols - j < kRegisterCols ? Last::kTiles : Wide::kTiles)[end - i];
      tile(p.depth, p.a + i * RowOfA, p.aStep, p.b + j, p.bRow, p.c + i * p.cRow + j,
           p.cRow, p.factor ? p.factor + j : nullptr);
    }
  }
}

/// Columns of a block that are computed.
SLUICE_INLINE int64_t blockCols(int64_t queries) { return ceilDiv(queries, 16) * 16; }

/// Lanes [lane, lane + lanes) of a block see its first `keys` keys at most.
struct BlockPart {
  int64_t lane, lanes, keys;
};

/// A block on a causal diagonal is two halves of 32 queries: what no query of a half sees
/// is not computed.
struct BlockParts {
  static constexpr int64_t kHalf = 32;
  BlockPart part[2];
  int count = 0;

  BlockParts(const AttentionParams &p, const BlockPlace &at) {
    int64_t cols = blockCols(at.queries);
    int64_t all = seen(p, at, at.queries - 1), first = seen(p, at, kHalf - 1);
    if (at.queries <= kHalf || first == all) {
      part[count++] = {0, cols, all};
      return;
    }
    part[count++] = {0, kHalf, first};
    part[count++] = {kHalf, cols - kHalf, all};
  }
  const BlockPart *begin() const { return part; }
  const BlockPart *end() const { return part + count; }

private:
  static int64_t seen(const AttentionParams &p, const BlockPlace &at, int64_t lane) {
    return most(0, least(at.keys, visibleKeys(p, at.query + lane) - at.key));
  }
};

SLUICE_INLINE void scaleFloats(float *x, int64_t count, float by) {
  for (int64_t i = 0; i < count; ++i)
    x[i] *= by;
}

/// Products on registers, of blocks whose left operand holds its rows side by side.
template <typename Form> struct OnRegisters {
  static constexpr int64_t stepOfKeys(int64_t) { return kKeys; }
  static constexpr int64_t stepOfValues(int64_t cols, int64_t) { return cols; }

  static void packKeys(Operand from, int64_t row, int64_t rows, int64_t depth,
                       float *to) {
    Form::packColumns(from, row, rows, depth, to);
  }
  static void packValues(Operand from, int64_t row, int64_t rows, int64_t depth,
                         int64_t cols, float *to) {
    Form::packWholeRows(from, row, rows, depth, cols, to);
  }
  /// Products take exactly as many keys and queries as there are.
  static void endKeys(float *, int64_t, int64_t) {}
  static void endQueries(float *, int64_t, int64_t, int64_t) {}

  template <int RowOfA, Store How> static void multiply(const BlockProduct &p) {
    multiplyOnRegisters<Form, RowOfA, How>(p);
  }
};

/// Blocks of floats, whatever is stored. Products of bf16 are those of AttentionPairs.h:
/// scores are scaled, not queries, whose values would be no bf16 any more.
template <typename S> struct Singles : OnRegisters<Singles<S>> {
  static constexpr bool kPaired = false;
  static constexpr bool kScalesQueries = S::kFormat != format::kBf16;
  /// Words between keys where sums over queries read probabilities and their gradients.
  static constexpr int kRowOfP = kQueries, kRowOfDs = kQueries;

  static constexpr int64_t steps(int64_t depth) { return depth; }
  static constexpr int64_t whole(int64_t depth) { return depth; }
  SLUICE_INLINE Vec fused(Vec x, Vec y, Vec sum) { return fma(x, y, sum); }
  SLUICE_INLINE Vec last(Vec, Vec, Vec sum) { return sum; }

  /// rows x depth elements as [depth][64], the rest 0.
  static void packColumns(Operand from, int64_t row, int64_t rows, int64_t depth,
                          float *to) {
    packPanelOf<kQueries>(from, row, 1, rows, depth, to);
  }
  /// rows x depth elements as [rows][cols], the rest 0.
  static void packWholeRows(Operand from, int64_t row, int64_t rows, int64_t depth,
                            int64_t cols, float *to) {
    byFormat(from.type, [&]<typename F>(F) {
      for (int64_t i = 0; i < rows; ++i, to += cols) {
        widen<F>(from.as<F>() + i * row, to, depth);
        for (int64_t d = depth; d < cols; ++d)
          to[d] = 0.0f;
      }
    });
  }
  /// Lanes from `lane` on of keys k and k + 1, for sums over keys, over queries, or both.
  SLUICE_INLINE void putKeys(float *block, int64_t lane, int64_t k, Vec first,
                             Vec second) {
    store(block + k * kQueries + lane, roundedTo<S>(first));
    store(block + (k + 1) * kQueries + lane, roundedTo<S>(second));
  }
  SLUICE_INLINE void putQueries(float *block, int64_t lane, int64_t k, Vec first,
                                Vec second) {
    putKeys(block, lane, k, first, second);
  }
  SLUICE_INLINE void putBoth(float *block, float *, int64_t lane, int64_t k, Vec first,
                             Vec second) {
    putKeys(block, lane, k, first, second);
  }
};

/// [depth][64] as rows of `depth` floats, `width` apart.
static inline void unpackColumns(const float *from, int64_t rows, int64_t depth,
                                 float *to, int64_t width) {
  int64_t wholeRows = rows / 8 * 8, wholeDepth = depth / 8 * 8;
  for (int64_t i = 0; i < wholeRows; i += 8)
    for (int64_t d = 0; d < wholeDepth; d += 8)
      transpose8x8<F32>(from + d * kQueries + i, kQueries, to + i * width + d, width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t d = i < wholeRows ? wholeDepth : 0; d < depth; ++d)
      to[i * width + d] = from[d * kQueries + i];
}

} // namespace sluice::SLUICE_LEVEL
