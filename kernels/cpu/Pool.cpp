// Pools. Rows of the result gain one kernel position at a time, so that the inner loops
// run along rows.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

constexpr float kLowest = -__builtin_inff();

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

struct Range {
  int64_t low, high;
};

/// Outputs o whose x position o * stride + shift is inside x.
SLUICE_INLINE Range outputsInside(const PoolParams &p, int d, int64_t shift) {
  int64_t stride = p.stride[d], left = p.in[d] - shift;
  int64_t low = shift >= 0 ? 0 : ceilDiv(-shift, stride);
  int64_t high = left <= 0 ? 0 : least(p.out[d], ceilDiv(left, stride));
  return {least(low, high), high};
}

/// Kernel positions k of output o with o * stride - pad + k * dilation inside x.
SLUICE_INLINE Range positionsInside(const PoolParams &p, int d, int64_t o) {
  int64_t start = o * p.stride[d] - p.pad[d], left = p.in[d] - start;
  int64_t low = start >= 0 ? 0 : ceilDiv(-start, p.dilation[d]);
  int64_t high = left <= 0 ? 0 : least(p.kernel[d], ceilDiv(left, p.dilation[d]));
  return {least(low, high), high};
}

/// Kernel positions an average counts along d.
SLUICE_INLINE int64_t countOf(const PoolParams &p, int d, int64_t o) {
  if (!p.countIncludePad) {
    Range r = positionsInside(p, d, o);
    return r.high - r.low;
  }
  int64_t left = p.in[d] + p.padEnd[d] - (o * p.stride[d] - p.pad[d]);
  return left <= 0 ? 0 : least(p.kernel[d], ceilDiv(left, p.dilation[d]));
}

/// Calls body(x row + shift, first output of the y row, columns) for every kernel
/// position and row of outputs with x inside; positions in order, then rows.
template <typename Body> SLUICE_INLINE void forEachRow(const PoolParams &p, Body body) {
  int64_t k[3], shift[3];
  Range r[3];
  auto enter = [&](int d) {
    shift[d] = k[d] * p.dilation[d] - p.pad[d];
    r[d] = outputsInside(p, d, shift[d]);
    return r[d].low < r[d].high;
  };
  for (k[0] = 0; k[0] < p.kernel[0]; ++k[0]) {
    if (!enter(0))
      continue;
    for (k[1] = 0; k[1] < p.kernel[1]; ++k[1]) {
      if (!enter(1))
        continue;
      for (k[2] = 0; k[2] < p.kernel[2]; ++k[2]) {
        if (!enter(2))
          continue;
        for (int64_t o0 = r[0].low; o0 < r[0].high; ++o0)
          for (int64_t o1 = r[1].low; o1 < r[1].high; ++o1) {
            int64_t row =
                (o0 * p.stride[0] + shift[0]) * p.in[1] + o1 * p.stride[1] + shift[1];
            body(row * p.in[2] + shift[2] + r[2].low * p.stride[2], o0, o1, r[2]);
          }
      }
    }
  }
}

SLUICE_INLINE bool wins(float v, float best) { return v > best || v != v; }

SLUICE_INLINE void maxRow(float *__restrict y, const float *__restrict x, int64_t step,
                          int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i)
      y[i] = wins(x[i], y[i]) ? x[i] : y[i];
  else if (step == 2)
    for (int64_t i = 0; i < n; ++i)
      y[i] = wins(x[2 * i], y[i]) ? x[2 * i] : y[i];
  else
    for (int64_t i = 0; i < n; ++i)
      y[i] = wins(x[i * step], y[i]) ? x[i * step] : y[i];
}

SLUICE_INLINE void fillFloats(float *to, float value, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = value;
}

/// Index of the first maximum of a window, -1 if nothing is inside.
SLUICE_INLINE int64_t firstMaximum(const PoolParams &p, const float *x, Range r0,
                                   Range r1, Range r2, const int64_t (&start)[3]) {
  int64_t at = -1;
  float best = kLowest;
  for (int64_t a = r0.low; a < r0.high; ++a)
    for (int64_t b = r1.low; b < r1.high; ++b) {
      int64_t row =
          ((start[0] + a * p.dilation[0]) * p.in[1] + start[1] + b * p.dilation[1]) *
              p.in[2] +
          start[2];
      for (int64_t c = r2.low; c < r2.high; ++c) {
        int64_t i = row + c * p.dilation[2];
        bool better = at < 0 || wins(x[i], best);
        // A NaN found first stays: it is the first maximum.
        if (better && best == best) {
          best = x[i];
          at = i;
        }
      }
    }
  return at;
}

} // namespace

void maxPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (outSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *y = static_cast<float *>(buffers[1]) + u * outSize;
    fillFloats(y, kLowest, outSize);
    forEachRow(p, [&](int64_t at, int64_t o0, int64_t o1, Range r) {
      maxRow(y + (o0 * p.out[1] + o1) * p.out[2] + r.low, x + at, p.stride[2],
             r.high - r.low);
    });
  }
}

void maxPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (inSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *dy = static_cast<const float *>(buffers[1]) + u * outSize;
    auto *dx = static_cast<float *>(buffers[2]) + u * inSize;
    fillFloats(dx, 0, inSize);
    int64_t o[3], start[3];
    for (o[0] = 0; o[0] < p.out[0]; ++o[0])
      for (o[1] = 0; o[1] < p.out[1]; ++o[1]) {
        Range r0 = positionsInside(p, 0, o[0]), r1 = positionsInside(p, 1, o[1]);
        for (o[2] = 0; o[2] < p.out[2]; ++o[2], ++dy) {
          Range r2 = positionsInside(p, 2, o[2]);
          for (int d = 0; d < 3; ++d)
            start[d] = o[d] * p.stride[d] - p.pad[d];
          int64_t at = firstMaximum(p, x, r0, r1, r2, start);
          if (at >= 0)
            dx[at] += *dy;
        }
      }
  }
}

void avgPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out), step = p.stride[2];
  if (outSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *y = static_cast<float *>(buffers[1]) + u * outSize;
    fillFloats(y, 0, outSize);
    forEachRow(p, [&](int64_t at, int64_t o0, int64_t o1, Range r) {
      float *row = y + (o0 * p.out[1] + o1) * p.out[2];
      const float *from = x + at - r.low * step;
      for (int64_t i = r.low; i < r.high; ++i)
        row[i] += from[i * step];
    });
    for (int64_t o0 = 0; o0 < p.out[0]; ++o0)
      for (int64_t o1 = 0; o1 < p.out[1]; ++o1) {
        int64_t count = countOf(p, 0, o0) * countOf(p, 1, o1);
        for (int64_t o2 = 0; o2 < p.out[2]; ++o2, ++y) {
          int64_t n = count * countOf(p, 2, o2);
          *y = n ? *y / static_cast<float>(n) : 0;
        }
      }
  }
}

void avgPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out), step = p.stride[2];
  if (inSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *dy = static_cast<const float *>(buffers[0]) + u * outSize;
    auto *dx = static_cast<float *>(buffers[1]) + u * inSize;
    fillFloats(dx, 0, inSize);
    forEachRow(p, [&](int64_t at, int64_t o0, int64_t o1, Range r) {
      const float *row = dy + (o0 * p.out[1] + o1) * p.out[2];
      int64_t count = countOf(p, 0, o0) * countOf(p, 1, o1);
      for (int64_t i = r.low; i < r.high; ++i)
        if (int64_t n = count * countOf(p, 2, i))
          dx[at + (i - r.low) * step] += row[i] / static_cast<float>(n);
    });
  }
}

} // namespace sluice::SLUICE_LEVEL
