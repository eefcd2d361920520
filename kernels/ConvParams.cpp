// Sizes of the convolution kernels and units chosen from shapes.

#include "kernels/ConvParams.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }
int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

constexpr int64_t kPanelBytes = gemm::kBlockK * gemm::kTileCols * 4;

/// The most channels per unit that leave so many units, but at least two tiles of them.
int64_t unitChannels(int64_t images, int64_t channels, int64_t units) {
  int64_t best = std::max<int64_t>(channels, 1);
  if (images >= units)
    return best;
  for (int64_t d = channels; d >= 2 * gemm::kTileRows; --d)
    if (channels % d == 0) {
      best = d;
      if (images * (channels / d) >= units)
        break;
    }
  return best;
}

/// The share of whole tiles that so many columns fill.
double filled(int64_t columns) {
  return double(columns) / double(roundUp(columns, gemm::kTileCols));
}

/// The fewest images, a divisor of all, whose columns fill tiles nearly as well as any
/// number up to 512 columns; 1 where one image's do.
int64_t unitImages(int64_t images, int64_t columns) {
  constexpr double enough = 0.7, nearly = 0.9;
  if (columns == 0 || filled(columns) >= enough)
    return 1;
  int64_t most = std::max<int64_t>(1, 512 / columns);
  double best = 0;
  for (int64_t d = 1; d <= std::min(images, most); ++d)
    if (images % d == 0)
      best = std::max(best, filled(d * columns));
  for (int64_t d = 1; d <= images; ++d)
    if (images % d == 0 && filled(d * columns) >= nearly * best)
      return d;
  return 1;
}

ConvParams planConv(const ConvGeometry &g, int64_t channels, int64_t columns,
                    int64_t sourceType, int64_t resultType) {
  ConvParams p;
  p.g = g, p.sourceType = sourceType, p.resultType = resultType;
  p.unitImages = unitImages(g.n, columns);
  // Each unit gathers for itself, which is more of the work where planes are tiny.
  int64_t units = p.unitImages > 1 ? 4 : 16;
  p.unitChannels = unitChannels(g.n / p.unitImages, channels, units);
  return p;
}

/// The channels 256 rows (channel, tap) touch, if their planes fit into 1 MB; and what a
/// tile reads beyond.
int64_t imageFloats(const int64_t (&plane)[3], int64_t channels, int64_t taps) {
  channels = std::min(channels, (gemm::kBlockK - 2 + taps) / taps + 1);
  double floats = double(plane[0]) * plane[1] * plane[2] * channels + gemm::kTileCols;
  return floats <= (1 << 18) ? static_cast<int64_t>(floats) : 0;
}

} // namespace

int64_t convForwardUnits(const ConvParams &p) {
  return ceilDiv(p.g.n, convUnitImages(p)) * (p.g.m / p.unitChannels);
}
int64_t convInputGradUnits(const ConvParams &p) {
  return ceilDiv(p.g.n, convUnitImages(p)) * (p.g.c / p.unitChannels);
}
int64_t convForwardWorkerBytes(const ConvParams &p) {
  return kPanelBytes + (convSumFloats(p, false) + convForwardImageFloats(p.g)) * 4;
}
int64_t convInputGradWorkerBytes(const ConvParams &p) {
  return kPanelBytes + (convSumFloats(p, true) + convInputGradImageFloats(p.g)) * 4;
}

int64_t convSumFloats(const ConvParams &p, bool inputGrad) {
  if (p.resultType == format::kF32)
    return 0;
  int64_t perGroup = (inputGrad ? p.g.c : p.g.m) / p.g.groups;
  int64_t channels = std::min(p.unitChannels, perGroup);
  // As floating-point: it may be beyond an integer, the least is not.
  double whole = double(channels) * double(convUnitImages(p)) *
                 double(volume(inputGrad ? p.g.in : p.g.out));
  int64_t piece =
      std::max(gemm::kBlockRows * gemm::kResultCols, channels * gemm::kTileCols);
  return whole < double(piece) ? roundUp(static_cast<int64_t>(whole), 16)
                               : roundUp(piece, 16);
}

int64_t depthwiseWorkerBytes(const DepthwiseParams &p, bool inputGrad) {
  bool strided = volume(p.g.stride) != 1;
  return inputGrad && strided && p.resultType != format::kF32 ? volume(p.g.in) * 4 : 0;
}

int64_t convForwardImageFloats(const ConvGeometry &g) {
  int64_t plane[3];
  for (int d = 0; d < 3; ++d) {
    if (g.stride[d] != 1)
      return 0;
    plane[d] = g.out[d] + (g.kernel[d] - 1) * g.dilation[d];
  }
  return imageFloats(plane, g.c / g.groups, volume(g.kernel));
}

/// Of the class of positions with the largest planes and the fewest taps.
int64_t convInputGradImageFloats(const ConvGeometry &g) {
  int64_t plane[3], taps = 1;
  for (int d = 0; d < 3; ++d) {
    int64_t period = g.stride[d] / std::gcd(g.stride[d], g.dilation[d]);
    int64_t most = ceilDiv(g.kernel[d], period),
            apart = period * g.dilation[d] / g.stride[d];
    plane[d] = ceilDiv(g.in[d], g.stride[d]) + (most - 1) * apart;
    taps *= std::max<int64_t>(1, g.kernel[d] / period);
  }
  return imageFloats(plane, g.m / g.groups, taps);
}

int64_t convPackUnits(const ConvPackParams &p, bool grad) {
  return p.g.groups * ceilDiv((grad ? p.g.c : p.g.m) / p.g.groups, gemm::kTileRows);
}

int64_t convPackedBytes(const ConvPackParams &p, bool grad) {
  int64_t cg = p.g.c / p.g.groups, mg = p.g.m / p.g.groups;
  int64_t rows = roundUp(grad ? cg : mg, gemm::kTileRows);
  return p.g.groups * rows * (grad ? mg : cg) * volume(p.g.kernel) * 4;
}

int64_t convWeightGradUnits(const ConvWeightGradParams &p) {
  int64_t cols = p.g.c / p.g.groups * volume(p.g.kernel);
  return p.slices * p.g.groups * ceilDiv(p.g.m / p.g.groups, p.unitRows) *
         ceilDiv(cols, p.unitCols);
}

int64_t convWeightGradWorkerBytes(const ConvWeightGradParams &p) {
  int64_t rows = std::min(p.unitRows, p.g.m / p.g.groups);
  int64_t image = convWeightGradImageFloats(p);
  if (image < 0)
    return 2 * kPanelBytes + roundUp(rows, gemm::kTileRows) * gemm::kBlockK * 4;
  return ((p.unitCols + gemm::kBlockK) * roundUp(rows, gemm::kTileCols) + image) * 4;
}

int64_t convWeightGradImageFloats(const ConvWeightGradParams &p) {
  const ConvGeometry &g = p.g;
  int64_t outputs = volume(g.out), taps = volume(g.kernel);
  if (p.unitCols > 256 || outputs == 0)
    return -1;
  bool inPlace = p.xType == format::kF32;
  double plane = 1;
  for (int d = 0; d < 3; ++d) {
    int64_t size = (g.out[d] - 1) * g.stride[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
    inPlace &= g.pad[d] == 0 && size <= g.in[d];
    plane *= static_cast<double>(size);
  }
  if (inPlace)
    return 0;
  int64_t channels = std::min(g.c / g.groups, (p.unitCols - 2 + taps) / taps + 1);
  int64_t images = (gemm::kBlockK - 2 + outputs) / outputs + 1;
  double floats = plane * static_cast<double>(channels * images);
  return floats <= (1 << 18) ? static_cast<int64_t>(floats) : -1;
}

int64_t convPartialBytes(const ConvWeightGradParams &p) {
  return p.slices * p.g.m * (p.g.c / p.g.groups) * volume(p.g.kernel) * 4;
}

bool canBeDepthwise(const ConvGeometry &g) {
  return g.groups == g.c && g.c > 0 && g.m % g.c == 0;
}

bool isDepthwise(const ConvGeometry &g) { return canBeDepthwise(g) && g.m / g.c <= 4; }

ConvParams planConvForward(const ConvGeometry &g, int64_t sourceType,
                           int64_t resultType) {
  return planConv(g, g.m, volume(g.out), sourceType, resultType);
}

/// The columns of a class of positions with the same remainder modulo the stride.
ConvParams planConvInputGrad(const ConvGeometry &g, int64_t sourceType,
                             int64_t resultType) {
  int64_t columns = 1;
  for (int d = 0; d < 3; ++d)
    columns *= ceilDiv(g.in[d], g.stride[d]);
  return planConv(g, g.c, columns, sourceType, resultType);
}

ConvWeightGradParams planConvWeightGrad(const ConvGeometry &g) {
  ConvWeightGradParams p;
  p.g = g;
  int64_t mg = g.m / g.groups, cols = g.c / g.groups * volume(g.kernel);
  int64_t rowBlocks = std::max<int64_t>(1, ceilDiv(mg, gemm::kBlockRows));
  p.unitRows = std::max<int64_t>(gemm::kTileRows, roundUp(ceilDiv(mg, rowBlocks), 12));
  int64_t colBlocks = std::max<int64_t>(1, ceilDiv(cols, 256));
  p.unitCols = std::max<int64_t>(32, roundUp(ceilDiv(cols, colBlocks), 32));
  // Slices over images until there is enough to share out, at most 16 MB of partial sums.
  p.sliceImages = std::max<int64_t>(g.n, 1), p.slices = 1;
  int64_t blocks = std::max<int64_t>(1, convWeightGradUnits(p));
  int64_t bytes = std::max<int64_t>(1, g.m * cols * 4);
  int64_t work = g.n * volume(g.out) / 512;
  int64_t wanted =
      std::min({ceilDiv(16, blocks), g.n, work, (int64_t{16} << 20) / bytes});
  if (wanted > 1) {
    p.sliceImages = ceilDiv(g.n, wanted);
    p.slices = ceilDiv(g.n, p.sliceImages);
  }
  while (convWeightGradUnits(p) < 16 && p.unitCols > 32)
    p.unitCols /= 2;
  return p;
}

} // namespace sluice
