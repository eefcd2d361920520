// Convolution and its gradient in x as implicit matrix products. Compiled once per
// feature level.

#include "kernels/cpu/Im2col.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Rows [first, last) of packed weights of one group, times the gathered columns, into
/// channel planes at `to` (plane of row `first`). `weights` is packed [panel][k][12].
struct GroupProduct {
  const Gather &gather;
  const float *weights;
  int64_t k, first, last;
  const float *source;
  float *to;
  int64_t planeSize;
  float *workspace;

  void run() const {
    int64_t columns = gather.gridSize();
    if (k == 0)
      for (int64_t j = 0; j < columns; j += kTileCols)
        writeZeros(j, least(kTileCols, columns - j));
    for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK)
      for (int64_t j = 0; j < columns; j += kTileCols)
        panel(k0, j, least(kTileCols, columns - j));
  }

private:
  void panel(int64_t k0, int64_t j, int64_t width) const {
    int64_t kc = least(gemm::kBlockK, k - k0);
    Run runs[kTileCols];
    int64_t count = cutRuns(gather, j, width, runs);
    RowCursor row(gather, source, k0);
    for (int64_t kk = 0; kk < kc; ++kk, row.next())
      gatherRow(gather, row.plane, row.offset, runs, count, workspace + kk * kTileCols);
    if (width < kTileCols) // the idle columns of a tile must be readable numbers, not
                           // slow denormals
      for (int64_t kk = 0; kk < kc; ++kk)
        zeroFloats(workspace + kk * kTileCols + width, kTileCols - width);
    for (int64_t r = first; r < last;) {
      int64_t within = r % kTileRows, rows = least(kTileRows - within, last - r);
      const float *a = weights + (r - within) * k + k0 * kTileRows + within;
      store(rows, kc, a, to + (r - first) * planeSize, runs, count, width, k0 > 0);
      r += rows;
    }
  }

  void store(int64_t rows, int64_t kc, const float *a, float *plane, const Run *runs,
             int64_t count, int64_t width, bool accumulate) const {
    int64_t step = gather.axis[2].targetStep;
    if (gather.axis[0].targetStep == 1 && gather.axis[1].targetStep == 1 && step == 1)
      return tile(rows, width, kc, a, workspace, kTileCols, plane + runs[0].target,
                  planeSize, 1, accumulate);
    alignas(64) float block[kTileRows * kTileCols];
    tile(rows, kTileCols, kc, a, workspace, kTileCols, block, kTileCols, 1, false);
    for (int64_t i = 0; i < rows; ++i, plane += planeSize)
      for (const Run *r = runs; r != runs + count; ++r)
        for (int64_t j = 0; j < r->count; ++j) {
          float &value = plane[r->target + j * step];
          float sum = block[i * kTileCols + r->at + j];
          value = accumulate ? value + sum : sum;
        }
  }

  void writeZeros(int64_t j, int64_t width) const {
    Run runs[kTileCols];
    int64_t count = cutRuns(gather, j, width, runs);
    for (int64_t r = first; r < last; ++r)
      for (const Run *run = runs; run != runs + count; ++run)
        for (int64_t i = 0; i < run->count; ++i)
          to[(r - first) * planeSize + run->target + i * gather.axis[2].targetStep] = 0;
  }
};

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

} // namespace

void convForward(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<ConvParams>(params);
  const ConvGeometry &g = p.g;
  auto *x = static_cast<const float *>(buffers[0]),
       *w = static_cast<const float *>(buffers[1]);
  auto *y = static_cast<float *>(buffers[2]),
       *workspace = static_cast<float *>(buffers[3]);
  Gather gather = forwardGather(g);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, k = cg * volume(g.kernel);
  int64_t inSize = volume(g.in), outSize = volume(g.out), blocks = g.m / p.unitChannels;
  if (outSize == 0)
    return;
  int64_t packedGroup = ceilDiv(mg, kTileRows) * kTileRows * k;
  for (int64_t u = begin; u < end; ++u) {
    int64_t image = u / blocks, channel = u % blocks * p.unitChannels;
    forEachGroup(channel, channel + p.unitChannels, mg,
                 [&](int64_t group, int64_t first, int64_t last, int64_t target) {
                   GroupProduct{gather,
                                w + group * packedGroup,
                                k,
                                first,
                                last,
                                x + (image * g.c + group * cg) * inSize,
                                y + (image * g.m + target) * outSize,
                                outSize,
                                workspace}
                       .run();
                 });
  }
}

void convInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t) {
  auto p = readParams<ConvParams>(params);
  const ConvGeometry &g = p.g;
  auto *dy = static_cast<const float *>(buffers[0]),
       *w = static_cast<const float *>(buffers[1]);
  auto *dx = static_cast<float *>(buffers[2]),
       *workspace = static_cast<float *>(buffers[3]);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups;
  int64_t inSize = volume(g.in), outSize = volume(g.out), blocks = g.c / p.unitChannels;
  if (inSize == 0)
    return;
  int64_t padded = ceilDiv(cg, kTileRows) * kTileRows;
  for (int64_t u = begin; u < end; ++u) {
    int64_t image = u / blocks, channel = u % blocks * p.unitChannels;
    int64_t tapsBefore = 0;
    forEachClass(g, false, [&](const int64_t(&rest)[3]) {
      Gather gather = inputGradGather(g, rest);
      forEachGroup(channel, channel + p.unitChannels, cg,
                   [&](int64_t group, int64_t first, int64_t last, int64_t target) {
                     GroupProduct{gather,
                                  w + (group * volume(g.kernel) + tapsBefore) * padded *
                                          mg,
                                  mg * gather.taps(),
                                  first,
                                  last,
                                  dy + (image * g.m + group * mg) * outSize,
                                  dx + (image * g.c + target) * inSize,
                                  inSize,
                                  workspace}
                         .run();
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
    packPanel<kTileRows>(static_cast<const float *>(buffers[0]) + (group * mg + r) * k, k,
                         1, least(kTileRows, mg - r), k,
                         static_cast<float *>(buffers[1]) + u * k * kTileRows);
  }
}

/// packed[group][class][panel of c][m, tap of the class][12].
void convPackWeightsForGrad(void *const *buffers, const int64_t *params, int64_t begin,
                            int64_t end, int64_t) {
  auto p = readParams<ConvPackParams>(params);
  const ConvGeometry &g = p.g;
  auto *w = static_cast<const float *>(buffers[0]);
  auto *packed = static_cast<float *>(buffers[1]);
  int64_t cg = g.c / g.groups, mg = g.m / g.groups, kernel = volume(g.kernel);
  int64_t panels = ceilDiv(cg, kTileRows);
  if (mg == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t group = u / panels, panel = u % panels, c = panel * kTileRows;
    int64_t rows = least(kTileRows, cg - c), tapsBefore = 0;
    forEachClass(g, true, [&](const int64_t(&rest)[3]) {
      Gather gather = inputGradGather(g, rest);
      const Axis *a = gather.axis;
      int64_t taps = gather.taps();
      float *to = packed + (group * kernel + tapsBefore) * panels * kTileRows * mg +
                  panel * kTileRows * mg * taps;
      for (int64_t m = 0; m < mg; ++m)
        for (int64_t t = 0; t < taps; ++t, to += kTileRows) {
          int64_t t2 = t % a[2].taps, t1 = t / a[2].taps % a[1].taps;
          int64_t t0 = t / a[2].taps / a[1].taps;
          int64_t at = ((a[0].kernelFirst + t0 * a[0].kernelStep) * g.kernel[1] +
                        a[1].kernelFirst + t1 * a[1].kernelStep) *
                           g.kernel[2] +
                       a[2].kernelFirst + t2 * a[2].kernelStep;
          const float *from = w + ((group * mg + m) * cg + c) * kernel + at;
          for (int64_t i = 0; i < rows; ++i)
            to[i] = from[i * kernel];
          zeroFloats(to + rows, kTileRows - rows);
        }
      tapsBefore += taps;
    });
  }
}

} // namespace sluice::SLUICE_LEVEL
