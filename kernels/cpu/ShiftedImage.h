#pragma once
// B of an implicit product without any gathering. Where neighbouring results read
// neighbouring sources, row (channel, tap) of B is the source plane itself, shifted: with
// pads stored around the plane, and results counted along the padded rows (some of them
// idle), columns j.. of every row start at plane + shift + j. The tile reads them in
// place.

#include "kernels/cpu/Im2col.h"

namespace sluice::SLUICE_LEVEL {

struct ShiftedImage {
  int64_t size[3]; ///< of a plane with its pads
  int64_t low[3];  ///< pad in front (may be negative: unused elements)
  int64_t columns; ///< results along padded rows, idle ones included
  bool inPlace;    ///< the source has no pads to add
  bool allUsed;    ///< no idle columns: they are the results in order

  int64_t plane() const { return size[0] * size[1] * size[2]; }
};

/// Channels that 256 rows of B may touch.
SLUICE_INLINE int64_t channelsPerBlock(int64_t taps) {
  return (gemm::kBlockK - 2 + taps) / taps + 1;
}

/// False when results do not step through the source one by one. Only a source of f32
/// can be read in place.
static inline bool shiftedImage(const Gather &g, bool isF32, ShiftedImage &s) {
  s.inPlace = isF32;
  for (int d = 0; d < 3; ++d) {
    const Axis &a = g.axis[d];
    if (a.step != 1)
      return false;
    int64_t last = a.first + (a.taps - 1) * a.tapStep;
    int64_t lowest = least(a.first, last), highest = most(a.first, last);
    s.low[d] = -lowest;
    s.size[d] = a.grid + highest - lowest;
    s.inPlace &= lowest >= 0 && a.grid + highest <= a.source;
  }
  if (s.inPlace)
    for (int d = 0; d < 3; ++d) {
      s.low[d] = 0;
      s.size[d] = g.axis[d].source;
    }
  s.columns = ((g.axis[0].grid - 1) * s.size[1] + g.axis[1].grid - 1) * s.size[2] +
              g.axis[2].grid;
  s.allUsed = s.size[1] == g.axis[1].grid && s.size[2] == g.axis[2].grid;
  // A panel reads 32 columns; fewer would run over the end of the source.
  s.inPlace &= s.columns >= kTileCols;
  return true;
}

/// Copies `channels` planes into planes with pads.
template <typename S>
static void copyWithPads(const Gather &g, const ShiftedImage &s,
                         const typename S::Element *source, int64_t channels, float *to) {
  const Axis &a2 = g.axis[2];
  int64_t first = most(0, s.low[2]), end = least(s.size[2], a2.source + s.low[2]);
  first = least(first, s.size[2]);
  end = most(first, end);
  for (int64_t c = 0; c < channels; ++c, source += g.sourceSize())
    for (int64_t i0 = 0; i0 < s.size[0]; ++i0)
      for (int64_t i1 = 0; i1 < s.size[1]; ++i1, to += s.size[2]) {
        int64_t s0 = i0 - s.low[0], s1 = i1 - s.low[1];
        if (s0 < 0 || s0 >= g.axis[0].source || s1 < 0 || s1 >= g.axis[1].source) {
          zeroFloats(to, s.size[2]);
          continue;
        }
        auto *row = source + (s0 * g.axis[1].source + s1) * a2.source;
        zeroFloats(to, first);
        widen<S>(row + first - s.low[2], to + first, end - first);
        zeroFloats(to + end, s.size[2] - end);
      }
}

/// Offsets of rows [k0, k0 + count) of B from the first channel's plane.
static inline void shiftsOfRows(const Gather &g, const ShiftedImage &s, int64_t tap,
                                int64_t count, int64_t *offsets) {
  int64_t t2 = tap % g.axis[2].taps, t1 = tap / g.axis[2].taps % g.axis[1].taps;
  int64_t t0 = tap / g.axis[2].taps / g.axis[1].taps, plane = 0;
  auto at = [&](int d, int64_t t) {
    return g.axis[d].first + t * g.axis[d].tapStep + s.low[d];
  };
  for (int64_t i = 0; i < count; ++i) {
    offsets[i] = plane + (at(0, t0) * s.size[1] + at(1, t1)) * s.size[2] + at(2, t2);
    if (++t2 < g.axis[2].taps)
      continue;
    t2 = 0;
    if (++t1 < g.axis[1].taps)
      continue;
    t1 = 0;
    if (++t0 < g.axis[0].taps)
      continue;
    t0 = 0;
    plane += s.plane();
  }
}

/// The columns [first, first + count) that are results, as runs within rows.
static inline int64_t cutUsedRuns(const Gather &g, const ShiftedImage &s, int64_t first,
                                  int64_t count, Run *runs) {
  const Axis &a1 = g.axis[1], &a2 = g.axis[2];
  int64_t n = 0;
  for (int64_t at = 0; at < count;) {
    int64_t j = first + at, g2 = j % s.size[2], g1 = j / s.size[2] % s.size[1];
    int64_t g0 = j / s.size[2] / s.size[1];
    int64_t step = least(count - at, s.size[2] - g2);
    if (g1 < a1.grid && g2 < a2.grid) {
      Run &r = runs[n++];
      r.at = at, r.count = least(step, a2.grid - g2);
      r.target = g.targetOf(g0, g1, g2);
    }
    at += step;
  }
  return n;
}

} // namespace sluice::SLUICE_LEVEL
