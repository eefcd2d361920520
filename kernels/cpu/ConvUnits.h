#pragma once
// The units of a convolution and of its gradient in x, whatever form their products take.

#include "kernels/cpu/ConvProduct.h"

namespace sluice::SLUICE_LEVEL {

SLUICE_INLINE int64_t volumeOf(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Calls body(rest) for every class of positions of the input gradient: those with the
/// same remainders modulo the strides.
template <typename Body>
SLUICE_INLINE void forEachClass(const ConvGeometry &g, Body body) {
  int64_t rest[3], classes[3];
  for (int d = 0; d < 3; ++d)
    classes[d] = least(g.stride[d], g.in[d]);
  for (rest[0] = 0; rest[0] < classes[0]; ++rest[0])
    for (rest[1] = 0; rest[1] < classes[1]; ++rest[1])
      for (rest[2] = 0; rest[2] < classes[2]; ++rest[2])
        body(rest);
}

/// Calls body(group, first, last, target) for the groups of channels [channel, end);
/// `perGroup` channels each, first and last counted within the group.
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

template <typename Form>
static void runConvUnits(const ConvParams &p, bool inputGrad, void *const *buffers,
                         int64_t begin, int64_t end) {
  Form form;
  const ConvGeometry &g = p.g;
  ConvWorkspace memory(convRoom(p, inputGrad), buffers[3]);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, kernel = volumeOf(g.kernel);
  int64_t results = inputGrad ? g.c : g.m, summed = inputGrad ? mg : cg;
  int64_t perGroup = inputGrad ? cg : mg, blocks = results / p.unitChannels;
  int64_t sourceSize = volumeOf(inputGrad ? g.out : g.in);
  int64_t resultSize = volumeOf(inputGrad ? g.in : g.out);
  Operand source{buffers[0], p.sourceType}, weights{buffers[1], p.wType};
  Result result{buffers[2], p.resultType};
  if (resultSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t image = u / blocks * convUnitImages(p), channel = u % blocks * p.unitChannels;
    int64_t images = least(convUnitImages(p), g.n - image);
    forEachGroup(
        channel, channel + p.unitChannels, perGroup,
        [&](int64_t group, int64_t first, int64_t last, int64_t target) {
          int64_t sources = summed * g.groups * sourceSize;
          ConvPart part{first,
                        last,
                        summed,
                        images,
                        {source.at(image * sources + group * summed * sourceSize),
                         sources, sourceSize},
                        {weights.at(group * mg * cg * kernel),
                         inputGrad ? kernel : cg * kernel,
                         inputGrad ? cg * kernel : kernel},
                        result.at((image * results + target) * resultSize),
                        resultSize,
                        results * resultSize};
          if (!inputGrad)
            return ImplicitProduct<Form>(form, forwardGather(g), g.kernel, part, memory)
                .run();
          forEachClass(g, [&](const int64_t(&rest)[3]) {
            ImplicitProduct<Form>(form, inputGradGather(g, rest), g.kernel, part, memory)
                .run();
          });
        });
  }
}

} // namespace sluice::SLUICE_LEVEL
