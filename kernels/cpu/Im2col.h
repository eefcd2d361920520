#pragma once
// Convolutions as matrix products whose B is never stored: rows are (channel, tap),
// columns positions of a grid.
//
// The forward pass gathers from x: grid = y, source coordinate = o * stride + k *
// dilation - pad. The input gradient gathers from dy, once per residue of the position i
// modulo the stride (sub-pixel classes, Shi et al. 2016): i = stride * g + rest takes the
// taps k with (rest + pad - k * dilation) divisible by the stride, at o = g + (rest + pad
// - k * dilation) / stride. No product with an inserted zero is computed.

#include "kernels/ConvParams.h"
#include "kernels/cpu/Pack.h"

namespace sluice::SLUICE_LEVEL {

/// One spatial dimension of a gather: source coordinate = grid * step + first + tap *
/// tapStep.
struct Axis {
  int64_t source, grid, step, taps, first, tapStep;
  int64_t kernelFirst,
      kernelStep; ///< position in the kernel = kernelFirst + tap * kernelStep
  int64_t targetFirst,
      targetStep; ///< position in the result = targetFirst + grid * targetStep
};

SLUICE_INLINE Axis forwardAxis(const ConvGeometry &g, int d) {
  return {g.in[d],       g.out[d], g.stride[d], g.kernel[d], -g.pad[d],
          g.dilation[d], 0,        1,           0,           1};
}

/// Class `rest` < min(stride, in) of the input gradient. Tap index i is kernel position
/// k0 + i * period.
static inline Axis inputGradAxis(const ConvGeometry &g, int d, int64_t rest) {
  int64_t stride = g.stride[d], dilation = g.dilation[d], kernel = g.kernel[d];
  int64_t a = stride, b = dilation;
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  int64_t period = stride / a, k0 = 0, shift = rest + g.pad[d];
  while (k0 < least(period, kernel) && (shift - k0 * dilation) % stride != 0)
    ++k0;
  int64_t taps = k0 < least(period, kernel) ? ceilDiv(kernel - k0, period) : 0;
  int64_t first = taps ? (shift - k0 * dilation) / stride : 0;
  return {g.out[d], ceilDiv(g.in[d] - rest, stride),
          1,        taps,
          first,    -(period * dilation / stride),
          k0,       period,
          rest,     stride};
}

/// Without the first and the last taps that are outside for every result: they multiply
/// zeros only. (A 3 x 3 kernel over planes of one element has one tap that does not.)
static inline Axis withoutIdleTaps(Axis a) {
  auto reaches = [&](int64_t tap) {
    int64_t first = a.first + tap * a.tapStep; // of the result 0
    int64_t low = first >= 0 ? 0 : ceilDiv(-first, a.step);
    return low < a.grid && first + low * a.step < a.source;
  };
  for (; a.taps > 0 && !reaches(0); --a.taps)
    a.first += a.tapStep, a.kernelFirst += a.kernelStep;
  while (a.taps > 0 && !reaches(a.taps - 1))
    --a.taps;
  return a;
}

struct Gather {
  Axis axis[3];
  int64_t targetSize[3];
  int64_t sourceSize() const { return axis[0].source * axis[1].source * axis[2].source; }
  int64_t gridSize() const { return axis[0].grid * axis[1].grid * axis[2].grid; }
  /// Index of a grid position in the result.
  int64_t targetOf(int64_t g0, int64_t g1, int64_t g2) const {
    return ((axis[0].targetFirst + g0 * axis[0].targetStep) * targetSize[1] +
            axis[1].targetFirst + g1 * axis[1].targetStep) *
               targetSize[2] +
           axis[2].targetFirst + g2 * axis[2].targetStep;
  }
  int64_t taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
};

SLUICE_INLINE Gather forwardGather(const ConvGeometry &g) {
  return {{forwardAxis(g, 0), forwardAxis(g, 1), forwardAxis(g, 2)},
          {g.out[0], g.out[1], g.out[2]}};
}

SLUICE_INLINE Gather inputGradGather(const ConvGeometry &g, const int64_t (&rest)[3]) {
  return {{inputGradAxis(g, 0, rest[0]), inputGradAxis(g, 1, rest[1]),
           inputGradAxis(g, 2, rest[2])},
          {g.in[0], g.in[1], g.in[2]}};
}

/// Consecutive columns within one innermost row of the grid.
struct Run {
  int64_t at, count; ///< position among the columns
  int64_t image;     ///< elements from the source to that of the columns' image
  int64_t source[3]; ///< coordinate of the first column before the tap's offset
  int64_t target;    ///< index of the first column in the result
};

/// Images whose columns follow one another: elements from one to the next, in the source
/// and in the result.
struct Images {
  int64_t count = 1, source = 0, target = 0;
};

/// Cuts columns [first, first + count) into at most `count` runs; returns how many.
static inline int64_t cutRuns(const Gather &g, int64_t first, int64_t count, Run *runs,
                              const Images &images = {}) {
  const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
  int64_t n = 0;
  for (int64_t at = 0; at < count;) {
    int64_t j = first + at, g2 = j % a2.grid, g1 = j / a2.grid % a1.grid,
            g0 = j / a2.grid / a1.grid, image = 0;
    if (images.count > 1)
      image = g0 / a0.grid, g0 %= a0.grid;
    Run &r = runs[n++];
    r.at = at, r.count = least(count - at, a2.grid - g2);
    r.image = image * images.source;
    r.source[0] = g0 * a0.step, r.source[1] = g1 * a1.step, r.source[2] = g2 * a2.step;
    r.target = image * images.target + g.targetOf(g0, g1, g2);
    at += r.count;
  }
  return n;
}

SLUICE_INLINE void zeroFloats(float *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = 0;
}

/// One row of B over the columns of `runs`: the source plane shifted by a tap; 0 outside.
template <typename S>
static void gatherRow(const Gather &g, const typename S::Element *plane,
                      const int64_t (&offset)[3], const Run *runs, int64_t count,
                      float *to) {
  const Axis &a2 = g.axis[2];
  for (const Run *r = runs; r != runs + count; ++r) {
    int64_t s0 = r->source[0] + offset[0], s1 = r->source[1] + offset[1];
    float *row = to + r->at;
    if (s0 < 0 || s0 >= g.axis[0].source || s1 < 0 || s1 >= g.axis[1].source) {
      zeroFloats(row, r->count);
      continue;
    }
    // Columns [low, high) lie inside the source.
    int64_t s2 = r->source[2] + offset[2], step = a2.step;
    int64_t low = s2 >= 0 ? 0 : step == 1 ? -s2 : ceilDiv(-s2, step);
    int64_t left = a2.source - s2;
    int64_t high = left <= 0 ? 0 : step == 1 ? left : ceilDiv(left, step);
    high = least(high, r->count);
    low = least(low, high);
    auto *from = plane + r->image + (s0 * g.axis[1].source + s1) * a2.source;
    zeroFloats(row, low);
    if (step == 1)
      widen<S>(from + (s2 + low), row + low, high - low);
    else
      for (int64_t i = low; i < high; ++i)
        row[i] = S::load1(from + s2 + i * step);
    zeroFloats(row + high, r->count - high);
  }
}

/// Walks rows (channel, tap) of B from `row` on.
template <typename S> struct RowCursor {
  using Element = typename S::Element;
  const Gather &g;
  const Element *plane; ///< of the current channel
  int64_t tap[3];
  int64_t offset[3];

  RowCursor(const Gather &g, const Element *source, int64_t row) : g(g) {
    int64_t t = row % g.taps();
    plane = source + row / g.taps() * g.sourceSize();
    tap[2] = t % g.axis[2].taps;
    tap[1] = t / g.axis[2].taps % g.axis[1].taps;
    tap[0] = t / g.axis[2].taps / g.axis[1].taps;
    setOffsets();
  }
  void next() {
    if (++tap[2] == g.axis[2].taps) {
      tap[2] = 0;
      if (++tap[1] == g.axis[1].taps) {
        tap[1] = 0;
        if (++tap[0] == g.axis[0].taps) {
          tap[0] = 0;
          plane += g.sourceSize();
        }
      }
    }
    setOffsets();
  }

private:
  void setOffsets() {
    for (int d = 0; d < 3; ++d)
      offset[d] = g.axis[d].first + tap[d] * g.axis[d].tapStep;
  }
};

} // namespace sluice::SLUICE_LEVEL
