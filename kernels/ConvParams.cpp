// Sizes of the convolution kernels and units chosen from shapes.

#include "kernels/ConvParams.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice {
namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }
int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

constexpr int64_t kPanelBytes = gemm::kBlockK * gemm::kTileCols * 4;

/// Products of the sizes along all axes may be beyond an integer.
double volumeOf(const double (&d)[3]) { return d[0] * d[1] * d[2]; }

/// What one unit's product is like: results of a class of positions, with the most and
/// the fewest kernel positions a class has.
struct Extent {
  int64_t channels, summed; ///< of a group
  double grid[3], planes[3];
  double mostTaps, fewestTaps;
};

Extent extentOf(const ConvGeometry &g, bool inputGrad) {
  Extent e;
  e.channels = (inputGrad ? g.c : g.m) / g.groups;
  e.summed = (inputGrad ? g.m : g.c) / g.groups;
  e.mostTaps = e.fewestTaps = 1;
  for (int d = 0; d < 3; ++d) {
    int64_t period = g.stride[d] / std::gcd(g.stride[d], g.dilation[d]);
    int64_t taps = inputGrad ? ceilDiv(g.kernel[d], period) : g.kernel[d];
    int64_t step = inputGrad ? 1 : g.stride[d];
    int64_t tapStep = inputGrad ? period * g.dilation[d] / g.stride[d] : g.dilation[d];
    e.grid[d] = static_cast<double>(inputGrad ? ceilDiv(g.in[d], g.stride[d]) : g.out[d]);
    double runs = static_cast<double>(step == 1 ? 1 : std::min(taps, step));
    e.planes[d] =
        runs * (e.grid[d] + static_cast<double>(taps - 1) * static_cast<double>(tapStep) /
                                static_cast<double>(step));
    e.mostTaps *= static_cast<double>(taps);
    e.fewestTaps *= static_cast<double>(
        inputGrad ? std::max<int64_t>(1, g.kernel[d] / period) : taps);
  }
  return e;
}

/// Parts of `whole` images a unit may have, most even first of all.
constexpr int64_t kMostParts = 64;

/// The time of a unit of `rows` channels and so many columns relative to its products
/// alone: weights are packed per unit and for about 512 columns, panels gathered per 288
/// rows, and the last tile of columns is whole.
double relativeTime(double rows, double columns) {
  double packing = 16 / std::min(columns, 512.0), gathering = 10 / std::min(rows, 288.0);
  double tiles = std::ceil(columns / gemm::kTileCols) * gemm::kTileCols / columns;
  return (1 + packing + gathering) * tiles;
}

/// Units that share the work evenly among as many workers as it is worth (4 to 16) and
/// lose little by themselves.
ConvParams planConv(ConvParams p, bool inputGrad) {
  const ConvGeometry &g = p.g;
  Extent e = extentOf(g, inputGrad);
  int64_t channels = inputGrad ? g.c : g.m;
  p.unitChannels = std::max<int64_t>(channels, 1), p.unitImages = 1;
  double columns = volumeOf(e.grid);
  if (channels == 0 || g.n == 0 || columns == 0)
    return p;
  double work = double(g.n) * double(channels) * columns * double(e.summed) * e.mostTaps;
  double workers = std::clamp(work / (1 << 24), 4.0, 16.0), best = 0;
  int64_t fewest = std::min<int64_t>(channels, 2 * gemm::kTileRows);
  for (int64_t rows = channels; rows >= fewest; --rows) {
    if (channels % rows || (rows > gemm::kBlockRows && rows < channels))
      continue;
    for (int64_t parts = 1; parts <= std::min(g.n, kMostParts + 1); ++parts) {
      int64_t images = parts > kMostParts ? 1 : ceilDiv(g.n, parts);
      double wide = columns * double(images);
      if (images > 1 && wide > 1024)
        continue;
      double units = double(ceilDiv(g.n, images)) * double(channels / rows);
      double idle = std::ceil(units / workers) * workers / units;
      double within = double(std::min(rows, e.channels));
      double time = relativeTime(within, wide) * idle;
      if (best == 0 || time < 0.98 * best)
        best = time, p.unitChannels = rows, p.unitImages = images;
    }
  }
  return p;
}

/// Of weights for k steps: panels of 12 rows, or tiles of 16 rows and 32 steps of bf16.
double packedFloats(const ConvParams &p, int64_t rows, double k) {
  double panels = double(roundUp(rows, gemm::kTileRows)) * k;
  double tiles = double(roundUp(rows, 16)) * std::ceil(k / 32) * 32 / 2;
  return usesPairs(p.sourceType, p.wType) ? std::max(panels, tiles) : panels;
}

} // namespace

ConvRoom convRoom(const ConvParams &p, bool inputGrad) {
  constexpr double kSums = 64 << 10, kWeights = 48 << 10;
  constexpr double kPlanes = 24 << 10, kFewPlanes = 8 << 10;
  Extent e = extentOf(p.g, inputGrad);
  int64_t rows = std::min({p.unitChannels, e.channels, gemm::kBlockRows});
  double images = double(std::min(convUnitImages(p), std::max<int64_t>(p.g.n, 1)));
  double columns = images * volumeOf(e.grid);
  double most = std::max(
      1.0, std::floor(kSums / double(std::max<int64_t>(rows, 1)) / gemm::kTileCols));
  ConvRoom room;
  room.sums = rows * gemm::kTileCols *
              int64_t(std::min(most, std::ceil(columns / gemm::kTileCols)));
  double k = double(e.summed) * e.mostTaps;
  bool isWhole = double(roundUp(rows, gemm::kTileRows)) * k <= kWeights;
  double block = packedFloats(p, rows, isWhole ? k : std::min(k, 256.0));
  room.weights = roundUp(int64_t(block), 16); // what follows stays aligned
  room.panel = (gemm::kBlockK + 1) * gemm::kTileCols;
  double touched = std::min(double(e.summed), gemm::kBlockK / e.fewestTaps + 2);
  double planes = touched * images * volumeOf(e.planes) + gemm::kTileCols;
  room.planes =
      roundUp(int64_t(std::clamp(planes, kFewPlanes, kPlanes)), 16) + 2 * gemm::kTileCols;
  return room;
}

int64_t convForwardUnits(const ConvParams &p) {
  return ceilDiv(p.g.n, convUnitImages(p)) * (p.g.m / p.unitChannels);
}
int64_t convInputGradUnits(const ConvParams &p) {
  return ceilDiv(p.g.n, convUnitImages(p)) * (p.g.c / p.unitChannels);
}
int64_t convForwardWorkerBytes(const ConvParams &p) { return convRoom(p, false).bytes(); }
int64_t convInputGradWorkerBytes(const ConvParams &p) {
  return convRoom(p, true).bytes();
}

int64_t depthwiseWorkerBytes(const DepthwiseParams &p, bool inputGrad) {
  bool strided = volume(p.g.stride) != 1;
  return inputGrad && strided && p.resultType != format::kF32 ? volume(p.g.in) * 4 : 0;
}

int64_t convWeightGradUnits(const ConvWeightGradParams &p) {
  int64_t cols = p.g.c / p.g.groups * volume(p.g.kernel);
  return p.slices * p.g.groups * ceilDiv(p.g.m / p.g.groups, p.unitRows) *
         ceilDiv(cols, p.unitCols);
}

/// Images of bf16 laid out for dot products: those of a block of 256 outputs, and one.
static int64_t pairedImageFloats(const ConvWeightGradParams &p) {
  int64_t taps = volume(p.g.kernel), outputs = volume(p.g.out);
  int64_t channels = std::min(p.g.c / p.g.groups, (p.unitCols - 2 + taps) / taps + 1);
  int64_t images = (gemm::kBlockK - 2 + outputs) / outputs + 2;
  double elements = volumeOf(extentOf(p.g, /*inputGrad=*/false).planes) *
                    static_cast<double>(channels * images);
  return roundUp(static_cast<int64_t>(elements / 2) + gemm::kTileCols, 16);
}

int64_t convWeightGradWorkerBytes(const ConvWeightGradParams &p) {
  int64_t rows = std::min(p.unitRows, p.g.m / p.g.groups);
  int64_t image = convWeightGradImageFloats(p);
  if (image >= 0 && usesPairs(p.xType, p.dyType))
    image = std::max(image, pairedImageFloats(p));
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

ConvParams planConvForward(const ConvGeometry &g, int64_t sourceType, int64_t wType,
                           int64_t resultType) {
  return planConv({g, 0, sourceType, resultType, 0, wType}, /*inputGrad=*/false);
}

ConvParams planConvInputGrad(const ConvGeometry &g, int64_t sourceType, int64_t wType,
                             int64_t resultType) {
  return planConv({g, 0, sourceType, resultType, 0, wType}, /*inputGrad=*/true);
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
  // Every unit packs dy for itself, so small ones are for work worth many workers.
  double macs = double(g.n) * double(volume(g.out)) * double(g.m) * double(cols);
  int64_t units = static_cast<int64_t>(std::clamp(macs / (1 << 23), 4.0, 16.0));
  while (convWeightGradUnits(p) < units && p.unitCols > 32)
    p.unitCols /= 2;
  return p;
}

} // namespace sluice
