// Convolution and its gradient in x as implicit matrix products. Compiled once per
// feature level.

#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/ShiftedImage.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Rows [first, last) of packed weights of one group, times the gathered columns, into
/// channel planes at `to` (plane of row `first`). `weights` is packed [panel][k][12]. The
/// workspace holds one panel of B, then `imageFloats` for planes with pads.
struct GroupProduct {
  const Gather &gather;
  const float *weights;
  int64_t k, first, last;
  const float *source;
  float *to;
  int64_t planeSize;
  float *workspace;
  int64_t imageFloats;

  void run() const {
    int64_t columns = gather.gridSize();
    if (columns == 0)
      return;
    if (k == 0)
      for (int64_t j = 0; j < columns; j += kTileCols)
        writeZeros(j, least(kTileCols, columns - j));
    ShiftedImage s;
    // A short sum does not repay cutting idle columns out of its tiles.
    bool shifted = k > 0 && shiftedImage(gather, s) && (k >= 64 || s.allUsed);
    if (shifted && !s.inPlace)
      shifted = channelsPerBlock(gather.taps()) * s.plane() + kTileCols <= imageFloats ||
                fitsWhole(s);
    for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK) {
      if (shifted)
        shiftedBlock(s, k0);
      else
        for (int64_t j = 0; j < columns; j += kTileCols)
          panel(k0, j, least(kTileCols, columns - j));
    }
  }

private:
  /// All channels with pads fit, though there are fewer than 256 rows may touch.
  bool fitsWhole(const ShiftedImage &s) const {
    return k / gather.taps() * s.plane() + kTileCols <= imageFloats;
  }

  bool isContiguous() const {
    return gather.axis[0].targetStep == 1 && gather.axis[1].targetStep == 1 &&
           gather.axis[2].targetStep == 1;
  }

  /// Calls body(weights, rows, first plane) for the pieces of [first, last) within panels
  /// of 12.
  template <typename Body> void forEachPiece(int64_t k0, Body body) const {
    for (int64_t r = first; r < last;) {
      int64_t within = r % kTileRows, rows = least(kTileRows - within, last - r);
      body(weights + (r - within) * k + k0 * kTileRows + within, rows,
           to + (r - first) * planeSize);
      r += rows;
    }
  }

  void shiftedBlock(const ShiftedImage &s, int64_t k0) const {
    int64_t kc = least(gemm::kBlockK, k - k0), taps = gather.taps(), channel = k0 / taps;
    int64_t offsets[gemm::kBlockK];
    shiftsOfRows(gather, s, k0 % taps, kc, offsets);
    const float *image = source + channel * gather.sourceSize();
    if (!s.inPlace) {
      float *padded = workspace + gemm::kBlockK * kTileCols;
      int64_t channels = (k0 + kc - 1) / taps - channel + 1;
      copyWithPads(gather, s, image, channels, padded);
      zeroFloats(padded + channels * s.plane(), kTileCols);
      image = padded;
    }
    for (int64_t j = 0; j < s.columns; j += kTileCols)
      shiftedPanel(s, k0, kc, image, offsets, j);
  }

  void shiftedPanel(const ShiftedImage &s, int64_t k0, int64_t kc, const float *image,
                    const int64_t *offsets, int64_t j) const {
    int64_t width = least(kTileCols, s.columns - j);
    // Where there is nothing to read behind the source, the last panel starts early and
    // repeats columns.
    int64_t early = s.inPlace ? kTileCols - width : 0;
    if (s.allUsed && width == kTileCols && isContiguous())
      return forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
        fullTileAt(rows, kc, a, image + j, offsets, plane + j, planeSize, k0 > 0);
      });
    Run runs[kTileCols];
    int64_t count = cutUsedRuns(gather, s, j, width, runs);
    alignas(64) float block[kTileRows * kTileCols];
    forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
      fullTileAt(rows, kc, a, image + j - early, offsets, block, kTileCols, false);
      storeRuns(rows, block + early, plane, runs, count, k0 > 0);
    });
  }

  void panel(int64_t k0, int64_t j, int64_t width) const {
    int64_t kc = least(gemm::kBlockK, k - k0);
    Run runs[kTileCols];
    int64_t count = cutRuns(gather, j, width, runs);
    RowCursor row(gather, source, k0);
    for (int64_t kk = 0; kk < kc; ++kk, row.next())
      gatherRow(gather, row.plane, row.offset, runs, count, workspace + kk * kTileCols);
    if (width < kTileCols) // idle columns of a tile should not be slow denormals
      for (int64_t kk = 0; kk < kc; ++kk)
        zeroFloats(workspace + kk * kTileCols + width, kTileCols - width);
    if (isContiguous())
      return forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
        tile(rows, width, kc, a, workspace, kTileCols, plane + j, planeSize, 1, k0 > 0);
      });
    alignas(64) float block[kTileRows * kTileCols];
    forEachPiece(k0, [&](const float *a, int64_t rows, float *plane) {
      tile(rows, kTileCols, kc, a, workspace, kTileCols, block, kTileCols, 1, false);
      storeRuns(rows, block, plane, runs, count, k0 > 0);
    });
  }

  void storeRuns(int64_t rows, const float *block, float *plane, const Run *runs,
                 int64_t count, bool accumulate) const {
    int64_t step = gather.axis[2].targetStep;
    for (int64_t i = 0; i < rows; ++i, plane += planeSize, block += kTileCols)
      for (const Run *r = runs; r != runs + count; ++r) {
        float *__restrict to = plane + r->target;
        const float *__restrict from = block + r->at;
        if (step == 1 && !accumulate)
          copyFloats(from, to, r->count);
        else if (step == 1)
          for (int64_t j = 0; j < r->count; ++j)
            to[j] += from[j];
        else
          for (int64_t j = 0; j < r->count; ++j)
            to[j * step] = accumulate ? to[j * step] + from[j] : from[j];
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
  int64_t imageFloats = convForwardImageFloats(g);
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
                                workspace,
                                imageFloats}
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
  int64_t imageFloats = convInputGradImageFloats(g);
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
                                  workspace,
                                  imageFloats}
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
