// Convolutions with one input channel per group, directly: a product would leave its
// tiles empty.

#include "kernels/ConvParams.h"
#include "kernels/cpu/Half.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Window.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Whether the input gradient is itself a sliding window over dy: with stride 1, by
/// kernel positions mirrored.
bool slidesOverOutputs(const ConvGeometry &g) {
  return g.stride[0] == 1 && g.stride[1] == 1 && g.stride[2] == 1;
}

/// x and y exchanged, and kernel positions from the last: its position k is position taps
/// - 1 - k of g.
ConvGeometry mirrored(const ConvGeometry &g) {
  ConvGeometry r = g;
  for (int d = 0; d < 3; ++d) {
    r.in[d] = g.out[d], r.out[d] = g.in[d];
    r.pad[d] = (g.kernel[d] - 1) * g.dilation[d] - g.pad[d];
  }
  return r;
}

/// As many outputs of a row as are summed in registers.
constexpr int64_t kSlide = 4 * kLanes;

/// y = sums over channels j < count (x planes `xPlane` apart) and kernel positions k of
/// weightOf(j, k) * x.
template <typename S, typename WeightOf>
SLUICE_INLINE void slide(const ConvGeometry &g, const Block &b,
                         const typename S::Element *x, int64_t xPlane, int64_t count,
                         WeightOf weightOf, const Result &y) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  for (int64_t j = 0; j < count; ++j)
    forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
      auto *from = x + j * xPlane + start;
      Vec weight = splat(weightOf(j, k));
#pragma GCC unroll 4
      for (int64_t v = 0; v < 4; ++v)
        if (v * kLanes < b.count) {
          int64_t low = inside.low - v * kLanes, high = inside.high - v * kLanes;
          sums[v] = fma(weight, loadLanes<S>(from + v * kLanes, low, high), sums[v],
                        lanes(low, high));
        }
    });
  if (y.type == format::kF32) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < 4; ++v)
      if (v * kLanes < b.count)
        store(y.as<F32>() + v * kLanes, sums[v], lanes(0, b.count - v * kLanes));
    return;
  }
  alignas(64) float block[kSlide];
#pragma GCC unroll 4
  for (int64_t v = 0; v < 4; ++v)
    store(block + v * kLanes, sums[v]);
  storeFloats(block, y, b.count);
}

/// sums[i % 16] = fma(x[i * stride], dy[i], sums[i % 16]) for i inside, in order.
template <typename S, typename D>
SLUICE_INLINE void addLanes(const typename S::Element *x, int64_t stride,
                            const typename D::Element *dy, Range inside, float *sums) {
  if (stride == 1) {
    for (int64_t i = inside.low / kLanes * kLanes; i < inside.high; i += kLanes) {
      int64_t low = inside.low - i, high = inside.high - i;
      float *to = sums + i % 16;
      store(to, fma(loadLanes<S>(x + i, low, high), loadLanes<D>(dy + i, low, high),
                    load(to), lanes(low, high)));
    }
    return;
  }
  for (int64_t i = inside.low; i < inside.high; ++i)
    sums[i % 16] =
        __builtin_fmaf(S::load1(x + i * stride), D::load1(dy + i), sums[i % 16]);
}

/// The weights of a unit, read many times.
class Weights {
public:
  Weights(const Operand &w, int64_t count) : stored(w), values(copy) {
    byFormat(w.type, [&]<typename S>(S) {
      if constexpr (S::kFormat == format::kF32)
        values = w.as<F32>();
      else if (count <= kMost)
        widen<S>(w.as<S>(), copy, count);
      else
        values = nullptr;
    });
  }
  Weights(const Weights &) = delete;
  float operator[](int64_t k) const { return values ? values[k] : elementOf(stored, k); }

private:
  static constexpr int64_t kMost = 256;
  Operand stored;
  const float *values;
  float copy[kMost];
};

/// One plane of y.
template <typename S>
void forwardPlane(const ConvGeometry &g, const typename S::Element *x, const Weights &w,
                  const Result &y) {
  if (g.stride[2] == 1)
    return forEachBlock<kSlide>(g, [&](const Block &b) {
      slide<S>(g, b, x, 0, 1, [&](int64_t, int64_t k) { return w[k]; }, y.at(b.index));
    });
  forEachBlock(g, [&](const Block &b) {
    alignas(64) float sums[kWindowBlock] = {};
    forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
      float weight = w[k];
      for (int64_t i = inside.low; i < inside.high; ++i)
        sums[i] = __builtin_fmaf(weight, S::load1(x + start + i * g.stride[2]), sums[i]);
    });
    storeFloats(sums, y.at(b.index), b.count);
  });
}

/// One plane of dx by a window over dy.
template <typename S>
void inputGradBySliding(const ConvGeometry &g, const typename S::Element *dy,
                        const Weights &w, const Result &dx) {
  int64_t taps = volume(g.kernel);
  ConvGeometry back = mirrored(g);
  forEachBlock<kSlide>(back, [&](const Block &b) {
    // Positions of `back` count from the last of g.
    slide<S>(
        back, b, dy, volume(g.out), g.m / g.c,
        [&](int64_t j, int64_t k) { return w[j * taps + taps - 1 - k]; }, dx.at(b.index));
  });
}

/// One plane of dx, where each output adds its share.
template <typename S>
void inputGradByScattering(const ConvGeometry &g, const typename S::Element *dy,
                           const Weights &w, float *dx) {
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  for (int64_t i = 0; i < inSize; ++i)
    dx[i] = 0;
  for (int64_t j = 0; j < g.m / g.c; ++j)
    forEachBlock(g, [&](const Block &b) {
      forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
        auto *from = dy + j * outSize + b.index;
        float *to = dx + start, weight = w[j * taps + k];
        for (int64_t i = inside.low; i < inside.high; ++i)
          to[i * g.stride[2]] =
              __builtin_fmaf(weight, S::load1(from + i), to[i * g.stride[2]]);
      });
    });
}

/// One plane of x and of dy into the lanes of kernel positions [first, last).
template <typename S, typename D>
void addPlane(const ConvGeometry &g, const typename S::Element *x,
              const typename D::Element *dy, int64_t first, int64_t last,
              float (&sums)[16][16]) {
  forEachBlock(g, [&](const Block &b) {
    // Blocks start at multiples of 16.
    forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
      if (k >= first && k < last)
        addLanes<S, D>(x + start, g.stride[2], dy + b.index, inside, sums[k - first]);
    });
  });
}

/// Kernel positions [first, last), at most 16, of channel m of dw.
template <typename S, typename D>
void weightGradPositions(const ConvGeometry &g, const typename S::Element *x,
                         const typename D::Element *dy, int64_t m, int64_t first,
                         int64_t last, const Result &dw) {
  int64_t outSize = volume(g.out), inSize = volume(g.in);
  alignas(64) float sums[16][16] = {};
  for (int64_t n = 0; n < g.n && outSize > 0; ++n) {
    widenedOnce<S>(x + (n * g.c + m / (g.m / g.c)) * inSize, inSize,
                   [&]<typename X>(X, const typename X::Element *xPlane) {
                     widenedOnce<D>(
                         dy + (n * g.m + m) * outSize, outSize,
                         [&]<typename Y>(Y, const typename Y::Element *dyPlane) {
                           addPlane<X, Y>(g, xPlane, dyPlane, first, last, sums);
                         });
                   });
  }
  for (int64_t k = first; k < last; ++k) {
    float *lane = sums[k - first];
    for (int64_t half = 8; half; half /= 2)
      for (int64_t i = 0; i < half; ++i)
        lane[i] += lane[i + half];
    storeFloats(lane, dw.at(k), 1);
  }
}

} // namespace

void depthwiseForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t) {
  auto p = readParams<DepthwiseParams>(params);
  const ConvGeometry &g = p.g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  if (outSize == 0)
    return;
  Operand w{buffers[1], p.wType};
  Result y{buffers[2], p.resultType};
  byFormat(p.sourceType, [&]<typename S>(S) {
    auto *x = static_cast<const typename S::Element *>(buffers[0]);
    for (int64_t u = begin; u < end; ++u) {
      int64_t m = u % g.m, c = m / (g.m / g.c);
      Weights weights(w.at(m * taps), taps);
      widenedOnce<S>(x + (u / g.m * g.c + c) * inSize, inSize,
                     [&]<typename R>(R, const typename R::Element *plane) {
                       forwardPlane<R>(g, plane, weights, y.at(u * outSize));
                     });
    }
  });
}

void depthwiseInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  auto p = readParams<DepthwiseParams>(params);
  const ConvGeometry &g = p.g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  int64_t per = g.m / g.c;
  if (inSize == 0)
    return;
  bool slides = slidesOverOutputs(g), rounds = p.resultType != format::kF32;
  Operand weights{buffers[1], p.wType};
  byFormat(p.sourceType, [&]<typename S>(S) {
    for (int64_t u = begin; u < end; ++u) {
      auto *dy = static_cast<const typename S::Element *>(buffers[0]) +
                 (u / g.c * g.m + u % g.c * per) * outSize;
      Weights w(weights.at(u % g.c * per * taps), per * taps);
      Result dx = Result{buffers[2], p.resultType}.at(u * inSize);
      widenedOnce<S>(
          dy, per * outSize, [&]<typename R>(R, const typename R::Element *planes) {
            if (slides)
              return inputGradBySliding<R>(g, planes, w, dx);
            float *sums = rounds ? static_cast<float *>(buffers[3]) : dx.as<F32>();
            inputGradByScattering<R>(g, planes, w, sums);
            if (rounds)
              storeFloats(sums, dx, inSize);
          });
    }
  });
}

void depthwiseWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                         int64_t end, int64_t) {
  auto p = readParams<DepthwiseWeightGradParams>(params);
  int64_t taps = volume(p.g.kernel);
  Result dw{buffers[2], p.dwType};
  byFormat(p.xType, [&]<typename S>(S) {
    byFormat(p.dyType, [&]<typename D>(D) {
      for (int64_t m = begin; m < end; ++m)
        for (int64_t first = 0; first < taps; first += 16)
          weightGradPositions<S, D>(p.g,
                                    static_cast<const typename S::Element *>(buffers[0]),
                                    static_cast<const typename D::Element *>(buffers[1]),
                                    m, first, least(first + 16, taps), dw.at(m * taps));
    });
  });
}

} // namespace sluice::SLUICE_LEVEL
