#pragma once
// Panels of an implicit product: how they hold k, and how they are gathered from planes.

#include "kernels/cpu/ConvPlanes.h"
#include "kernels/cpu/ConvWeights.h"

namespace sluice::SLUICE_LEVEL {

/// Rows of packed weights times a panel: 32 columns of sums, some of which may be idle.
struct PanelProduct {
  int64_t rows, k;
  const float *weights, *panel;
  float *sums;
  int64_t row;
  bool accumulate;
};

/// Products on register tiles, of panels of 12 rows of weights; rows of a panel as `Form`
/// holds k.
template <typename Form> struct OnRegisterTiles {
  static int64_t weightFloats(int64_t rows, int64_t k) {
    return ceilDiv(rows, kTileRows) * kTileRows * k;
  }
  static void endPanel(int64_t, float *) {}
  static void multiply(const PanelProduct &p) {
    for (int64_t i = 0; i < p.rows; i += kTileRows)
      fullTile(least(kTileRows, p.rows - i), p.k, p.weights + i * Form::steps(p.k),
               p.panel, kTileCols, p.sums + i * p.row, p.row, p.accumulate, Form::kTiles);
  }
  static void finish() {}
};

/// How operands hold k: each step by itself, as f32.
struct SingleTaps : OnRegisterTiles<SingleTaps> {
  using Element = float; ///< of planes
  static constexpr const RegisterTile *kTiles = kRegisterTiles;
  /// Rows of a panel.
  static int64_t steps(int64_t k) { return k; }

  static void packA(const WeightRows &w, int64_t first, const int64_t *at, int64_t rows,
                    int64_t k, float *to) {
    packWeights(w, first, at, rows, k, to);
  }
  static void fill(const Gather &g, const Planes &p, const Box &box, const Source &source,
                   int64_t channel, int64_t channels, float *to) {
    byFormat(source.data.type, [&]<typename S>(S) {
      fillPlanes<S>(g, p, box, source, channel, channels, to);
    });
  }
  /// Row kk of a column of the panel.
  static void put(Operand element, int64_t kk, float *to) {
    to[kk * kTileCols] = elementOf(element, 0);
  }
  static void gatherStep(const float *planes, const int64_t *rows, int64_t, int64_t at,
                         int64_t offset, float *to) {
    store(to + at, load(planes + rows[0] + offset));
  }
  static constexpr int64_t kStep = 1;
};

/// k rows of up to 32 columns. Each copy is a whole vector: what it writes beyond its
/// columns is written again after. `Count` 0: any number of stretches.
template <typename Form, int Count = 0>
static void gatherRows(const typename Form::Element *planes, const int64_t *rows,
                       int64_t k, const ColumnRun *stretches, int64_t count, float *to) {
  if constexpr (Count == 0) {
    switch (count) {
#define SLUICE_COUNT(n)                                                                  \
  case n:                                                                                \
    return gatherRows<Form, n>(planes, rows, k, stretches, count, to)
      SLUICE_COUNT(1);
      SLUICE_COUNT(2);
      SLUICE_COUNT(3);
      SLUICE_COUNT(4);
      SLUICE_COUNT(5);
      SLUICE_COUNT(6);
      SLUICE_COUNT(8);
#undef SLUICE_COUNT
    }
  }
  constexpr int kKnown = Count ? Count : 1;
  int64_t at[kKnown], offset[kKnown];
  for (int i = 0; i < Count; ++i)
    at[i] = stretches[i].at, offset[i] = stretches[i].offset;
  for (int64_t kk = 0; kk < k; kk += Form::kStep, rows += Form::kStep, to += kTileCols) {
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i)
      Form::gatherStep(planes, rows, k - kk, at[i], offset[i], to);
    for (int64_t i = Count; i < count; ++i)
      Form::gatherStep(planes, rows, k - kk, stretches[i].at, stretches[i].offset, to);
  }
}

} // namespace sluice::SLUICE_LEVEL
