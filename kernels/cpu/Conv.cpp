// Convolution and its gradient in x as implicit matrix products. Compiled once per
// feature level.

#include "kernels/cpu/GroupProduct.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Calls body(rest) for every class of positions of the input gradient, or only for those
/// that any kernel position reaches.
template <typename Body>
SLUICE_INLINE void forEachClass(const ConvGeometry &g, bool reachedOnly, Body body) {
  auto skip = [&](int d, int64_t rest) {
    return reachedOnly && inputGradAxis(g, d, rest).taps == 0;
  };
  int64_t rest[3], classes[3];
  for (int d = 0; d < 3; ++d)
    classes[d] = least(g.stride[d], g.in[d]);
  for (rest[0] = 0; rest[0] < classes[0]; ++rest[0]) {
    if (skip(0, rest[0]))
      continue;
    for (rest[1] = 0; rest[1] < classes[1]; ++rest[1]) {
      if (skip(1, rest[1]))
        continue;
      for (rest[2] = 0; rest[2] < classes[2]; ++rest[2])
        if (!skip(2, rest[2]))
          body(rest);
    }
  }
}

/// Calls body(group, first, last, target) for the groups of channels [first, last) of one
/// image; `perGroup` channels each, rows counted within the group.
template <typename Body>
SLUICE_INLINE void forEachGroup(int64_t channel, int64_t end, int64_t perGroup,
                                Body body) {
  while (channel < end) {
    int64_t group = channel / perGroup, first = channel % perGroup;
    int64_t last = least(perGroup, first + end - channel);
    body(group, first, last, channel);
    channel += last - first;
  }
}

/// Operands and workspace of one launch. Sums of a result of 16 bits come first in the
/// workspace.
struct Buffers {
  Operand source;
  const float *weights;
  Result result;
  float *sums, *workspace;
  int64_t sumFloats, imageFloats;

  Buffers(const ConvParams &p, void *const *buffers, int64_t sumFloats,
          int64_t imageFloats)
      : source{buffers[0], p.sourceType}, weights(static_cast<float *>(buffers[1])),
        result{buffers[2], p.resultType}, sums(static_cast<float *>(buffers[3])),
        workspace(sums + sumFloats), sumFloats(sumFloats), imageFloats(imageFloats) {}
};

/// Channels [first, last) of a group: `weights` floats into the packed ones, the group's
/// source and the result's planes at those elements.
struct Part {
  int64_t weights, k, first, last, source, result;
  Images images;
};

void runPart(const Buffers &b, const Gather &gather, int64_t planeSize,
             const Part &part) {
  byFormat(b.source.type, [&]<typename S>(S) {
    GroupProduct<S> product{&gather,     b.weights + part.weights,
                            part.k,      part.first,
                            part.last,   b.source.at(part.source).template as<S>(),
                            b.sums,      planeSize,
                            b.workspace, b.imageFloats,
                            part.images};
    Result to = b.result.at(part.result);
    if (to.type != format::kF32)
      return runRounded(product, gather, to, planeSize, b.sumFloats);
    product.to = to.as<F32>();
    product.run();
  });
}

} // namespace

void convForward(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<ConvParams>(params);
  const ConvGeometry &g = p.g;
  Buffers b(p, buffers, convSumFloats(p, /*inputGrad=*/false), convForwardImageFloats(g));
  Gather gather = forwardGather(g);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, k = cg * volume(g.kernel);
  int64_t inSize = volume(g.in), outSize = volume(g.out), blocks = g.m / p.unitChannels;
  if (outSize == 0)
    return;
  int64_t packedGroup = ceilDiv(mg, kTileRows) * kTileRows * k;
  for (int64_t u = begin; u < end; ++u) {
    int64_t image = u / blocks * convUnitImages(p), channel = u % blocks * p.unitChannels;
    Images images{least(convUnitImages(p), g.n - image), g.c * inSize, g.m * outSize};
    forEachGroup(channel, channel + p.unitChannels, mg,
                 [&](int64_t group, int64_t first, int64_t last, int64_t target) {
                   runPart(b, gather, outSize,
                           {group * packedGroup, k, first, last,
                            (image * g.c + group * cg) * inSize,
                            (image * g.m + target) * outSize, images});
                 });
  }
}

void convInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t) {
  auto p = readParams<ConvParams>(params);
  const ConvGeometry &g = p.g;
  Buffers b(p, buffers, convSumFloats(p, /*inputGrad=*/true),
            convInputGradImageFloats(g));
  int64_t cg = g.c / g.groups, mg = g.m / g.groups;
  int64_t inSize = volume(g.in), outSize = volume(g.out), blocks = g.c / p.unitChannels;
  if (inSize == 0)
    return;
  int64_t padded = ceilDiv(cg, kTileRows) * kTileRows;
  for (int64_t u = begin; u < end; ++u) {
    int64_t image = u / blocks * convUnitImages(p), channel = u % blocks * p.unitChannels;
    Images images{least(convUnitImages(p), g.n - image), g.m * outSize, g.c * inSize};
    int64_t tapsBefore = 0;
    forEachClass(g, false, [&](const int64_t(&rest)[3]) {
      Gather gather = inputGradGather(g, rest);
      forEachGroup(channel, channel + p.unitChannels, cg,
                   [&](int64_t group, int64_t first, int64_t last, int64_t target) {
                     runPart(b, gather, inSize,
                             {(group * volume(g.kernel) + tapsBefore) * padded * mg,
                              mg * gather.taps(), first, last,
                              (image * g.m + group * mg) * outSize,
                              (image * g.c + target) * inSize, images});
                   });
      tapsBefore += gather.taps();
    });
  }
}

void convPackWeights(void *const *buffers, const int64_t *params, int64_t begin,
                     int64_t end, int64_t) {
  auto p = readParams<ConvPackParams>(params);
  const ConvGeometry &g = p.g;
  int64_t mg = g.m / g.groups, k = g.c / g.groups * volume(g.kernel);
  int64_t panels = ceilDiv(mg, kTileRows);
  if (k == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t group = u / panels, r = u % panels * kTileRows;
    Operand w{buffers[0], p.wType};
    packPanelOf<kTileRows>(w.at((group * mg + r) * k), k, 1, least(kTileRows, mg - r), k,
                           static_cast<float *>(buffers[1]) + u * k * kTileRows);
  }
}

/// One channel m of a panel: [tap of the class][12] from the kernels of up to 12 channels
/// of x, side by side.
template <typename S>
static void packTaps(const ConvGeometry &g, const Gather &gather,
                     const typename S::Element *kernels, int64_t rows, float *to) {
  const Axis *a = gather.axis;
  int64_t kernel = volume(g.kernel);
  for (int64_t t0 = 0; t0 < a[0].taps; ++t0)
    for (int64_t t1 = 0; t1 < a[1].taps; ++t1)
      for (int64_t t2 = 0; t2 < a[2].taps; ++t2, to += kTileRows) {
        int64_t at = ((a[0].kernelFirst + t0 * a[0].kernelStep) * g.kernel[1] +
                      a[1].kernelFirst + t1 * a[1].kernelStep) *
                         g.kernel[2] +
                     a[2].kernelFirst + t2 * a[2].kernelStep;
        for (int64_t i = 0; i < rows; ++i)
          to[i] = S::load1(kernels + i * kernel + at);
        zeroFloats(to + rows, kTileRows - rows);
      }
}

/// packed[group][class][panel of c][m, tap of the class][12]. The weights are read once,
/// in order: for a panel alone they lie a row of all channels apart.
template <typename S>
static void packForGrad(const ConvGeometry &g, void *const *buffers, int64_t begin,
                        int64_t end) {
  auto *w = static_cast<const typename S::Element *>(buffers[0]);
  auto *packed = static_cast<float *>(buffers[1]);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, kernel = volume(g.kernel);
  int64_t panels = ceilDiv(cg, kTileRows);
  int64_t tapsBefore = 0;
  forEachClass(g, true, [&](const int64_t(&rest)[3]) {
    Gather gather = inputGradGather(g, rest);
    int64_t taps = gather.taps();
    forEachGroup(
        begin, end, panels, [&](int64_t group, int64_t first, int64_t last, int64_t) {
          float *to = packed + (group * kernel + tapsBefore) * panels * kTileRows * mg;
          for (int64_t m = 0; m < mg; ++m)
            for (int64_t panel = first; panel < last; ++panel) {
              int64_t c = panel * kTileRows;
              packTaps<S>(g, gather, w + ((group * mg + m) * cg + c) * kernel,
                          least(kTileRows, cg - c),
                          to + (panel * mg + m) * taps * kTileRows);
            }
        });
    tapsBefore += taps;
  });
}

void convPackWeightsForGrad(void *const *buffers, const int64_t *params, int64_t begin,
                            int64_t end, int64_t) {
  auto p = readParams<ConvPackParams>(params);
  byFormat(p.wType, [&]<typename S>(S) { packForGrad<S>(p.g, buffers, begin, end); });
}

} // namespace sluice::SLUICE_LEVEL
