#include "passes/GradientTiles.h"

#include "kernels/Params.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// Of a chunk: the tile must not push what the product keeps out of the cache.
constexpr int64_t cachedBytes = 1 << 19;

int64_t cappedChunk(int64_t chunk, const TileParams &tiles) {
  return std::clamp<int64_t>(cachedBytes / (tiles.tileElements() * 4), 1, chunk);
}

GradientTiles cutProduct(GemmParams params, int64_t chunk) {
  GradientTiles made;
  int64_t cols = params.unitCols ? params.unitCols : params.n;
  made.tiles = {params.m * params.n, params.m, params.n, params.unitRows, cols};
  if (params.unitCols)
    params.cTiles = 1, params.cRow = cols;
  made.params = packParams(params);
  made.chunk = cappedChunk(chunk, made.tiles);
  return made;
}

constexpr int64_t enoughUnits = 8;

/// Rows of tiles of which all are alike; 0 if there are none.
int64_t equalRows(int64_t rows, int64_t cols, int64_t multiple) {
  int64_t most =
      std::min({cachedBytes / (cols * 4), rows / enoughUnits, gemm::kBlockRows});
  int64_t best = 0;
  for (int64_t unit = 1; unit <= most; ++unit)
    if (rows % unit == 0 && unit * cols % multiple == 0 &&
        (unit % gemm::kTileRows == 0 || best % gemm::kTileRows != 0))
      best = unit;
  return best;
}

/// An update of short pieces of rows waits for memory, which fetches ahead along rows
/// only: a walk over the whole tensor would be faster.
bool isWide(const TileParams &tiles) {
  constexpr int64_t fewestCols = 128;
  return tiles.unitCols >= std::min(fewestCols, tiles.cols);
}

/// Whole rows first, then wider tiles than the product's own.
SmallVector<GradientTiles> tilesOfProduct(plan::StageOp stage, int64_t chunk,
                                          int64_t multiple) {
  auto params = unpackParams<GemmParams>(stage.getParams().data());
  if (params.accumulate || params.cType != format::kF32 || params.batch0 != 1 ||
      params.batch1 != 1 || params.cRow != params.n)
    return {};
  SmallVector<GradientTiles> made;
  if (multiple > 0) {
    params.unitCols = 0;
    params.unitRows = equalRows(params.m, params.n, multiple);
    if (params.unitRows > 0)
      made.push_back(cutProduct(params, 1));
    return made;
  }
  if (params.unitCols) {
    constexpr int64_t tile = gemm::kTileRows;
    GemmParams rows = params;
    rows.unitCols = 0;
    int64_t cached = cachedBytes / (params.n * 4) / tile * tile;
    int64_t shared = llvm::alignTo(llvm::divideCeil(params.m, enoughUnits), tile);
    rows.unitRows = std::min({cached, shared, gemm::kBlockRows});
    if (rows.unitRows >= tile)
      made.push_back(cutProduct(rows, 1));
    for (int64_t cols : {512, 256})
      if (cols > params.unitCols && cols < params.n) {
        GemmParams wide = params;
        wide.unitCols = cols;
        made.push_back(cutProduct(wide, 1));
      }
  }
  made.push_back(cutProduct(params, chunk));
  llvm::erase_if(made, [](const GradientTiles &cut) { return !isWide(cut.tiles); });
  return made;
}

std::optional<GradientTiles> tilesOfConv(plan::StageOp stage, int64_t chunk,
                                         int64_t multiple) {
  auto params = unpackParams<ConvWeightGradParams>(stage.getParams().data());
  const ConvGeometry &g = params.g;
  if (params.slices != 1 || g.groups != 1 || multiple > 0)
    return std::nullopt;
  GradientTiles made;
  int64_t cols = g.c * g.kernel[0] * g.kernel[1] * g.kernel[2];
  made.tiles = {g.m * cols, g.m, cols, params.unitRows, params.unitCols};
  params.tiles = 1;
  made.params = packParams(params);
  made.chunk = cappedChunk(chunk, made.tiles);
  return made;
}

std::optional<GradientTiles> tilesOfSum(plan::StageOp stage, int64_t chunk,
                                        int64_t multiple) {
  auto params = unpackParams<SumSlicesParams>(stage.getParams().data());
  if (params.accumulate || params.cType != format::kF32 || params.cRow != params.cols)
    return std::nullopt;
  if (multiple > 0)
    params.unitRows = equalRows(params.rows, params.cols, multiple);
  if (params.unitRows < 1)
    return std::nullopt;
  GradientTiles made;
  made.tiles = {params.rows * params.cols, params.rows, params.cols, params.unitRows,
                params.cols};
  made.params = packParams(params);
  made.chunk = cappedChunk(chunk, made.tiles);
  return made;
}

/// Rows of a table, of which each unit takes what a batch adds to them.
std::optional<GradientTiles> tilesOfScatter(plan::StageOp stage, int64_t chunk,
                                            int64_t multiple) {
  auto params = unpackParams<ScatterAddParams>(stage.getParams().data());
  if (params.accumulate || params.outer != 1)
    return std::nullopt;
  int64_t rows = params.axis, cols = params.inner;
  params.unitRows = multiple > 0
                        ? equalRows(rows, cols, multiple)
                        : std::clamp<int64_t>(cachedBytes / (cols * 4), 1,
                                              llvm::divideCeil(rows, enoughUnits));
  if (params.unitRows < 1)
    return std::nullopt;
  GradientTiles made;
  made.tiles = {rows * cols, rows, cols, params.unitRows, cols};
  made.params = packParams(params);
  made.chunk = cappedChunk(chunk, made.tiles);
  return made;
}

} // namespace

SmallVector<GradientTiles> gradientTiles(plan::LaunchOp launch, int64_t multiple) {
  Block &body = launch.getBody().front();
  if (!llvm::hasSingleElement(body))
    return {};
  auto stage = cast<plan::StageOp>(body.front());
  if (stage.getOuts().size() != 1 || stage.getPart() || stage.getUnitStrides())
    return {};
  int64_t chunk = launch.getChunk();
  StringRef kernel = stage.getKernel();
  if (kernel == "gemm_f32" || kernel == "gemm_packed_f32")
    return tilesOfProduct(stage, chunk, multiple);
  std::optional<GradientTiles> made;
  if (kernel == "conv_weight_grad_f32")
    made = tilesOfConv(stage, chunk, multiple);
  else if (kernel == "sum_slices_f32")
    made = tilesOfSum(stage, chunk, multiple);
  else if (kernel == "scatter_add_f32")
    made = tilesOfScatter(stage, chunk, multiple);
  if (!made || !isWide(made->tiles))
    return {};
  return {*made};
}

} // namespace sluice
