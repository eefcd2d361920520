#include "kernels/Work.h"

#include <algorithm>

namespace sluice {
namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return b > 0 ? (a + b - 1) / b : 0; }
int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }
int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Blocks of `size` (0: all) of `length`, each rounded up to whole tiles.
int64_t tiled(int64_t length, int64_t size, int64_t tile) {
  if (size <= 0 || size >= length)
    return roundUp(length, tile);
  return length / size * roundUp(size, tile) + roundUp(length % size, tile);
}

double sumBlocks(int64_t depth) {
  return double(std::max<int64_t>(1, ceilDiv(depth, gemm::kBlockK)));
}

/// What multiplications are of: f32 unless both operands are of the same 16 bits.
int64_t multiplied(int64_t a, int64_t b) { return a == b ? a : format::kF32; }

KernelWork splitKWork(const GemmSplitKParams &p) {
  GemmParams whole;
  whole.m = p.m, whole.n = p.n, whole.k = p.k;
  whole.aType = p.aType, whole.bType = p.bType;
  whole.unitRows = p.unitRows, whole.unitCols = p.unitCols;
  return gemmWork(whole, /*packed=*/false, /*chunk=*/1);
}

KernelWork gatherWork(const GatherParams &p) {
  KernelWork work;
  work.kind = WorkKind::Index;
  work.bytes =
      2.0 * double(p.outer) * double(p.count) * double(p.inner) * double(p.elementBytes) +
      double(p.count * p.indexBytes);
  return work;
}

} // namespace

KernelWork gemmWork(const GemmParams &p, bool packed, int64_t chunk) {
  KernelWork work;
  work.kind = WorkKind::Product;
  work.operandType = multiplied(p.aType, p.bType);
  int64_t batches = p.batch0 * p.batch1;
  int64_t unitRows =
      std::min(std::max<int64_t>(p.unitRows, 1), std::max<int64_t>(p.m, 1));
  int64_t colBlocks = p.unitCols > 0 ? ceilDiv(p.n, p.unitCols) : 1;
  double paddedRows = double(batches) * double(tiled(p.m, unitRows, gemm::kTileRows));
  double paddedCols = double(tiled(p.n, p.unitCols, gemm::kTileCols));
  work.rows = double(p.m), work.cols = double(p.n), work.depth = double(p.k);
  work.batches = double(batches);
  work.flops = 2.0 * double(batches) * double(p.m) * double(p.n) * double(p.k);
  work.tileFlops = 2.0 * paddedRows * paddedCols * double(p.k);
  // Every block of columns packs its rows again, every chunk of rows its columns.
  work.left = paddedRows * double(p.k) * double(colBlocks);
  int64_t chunkRows = p.unitCols > 0 ? unitRows : unitRows * std::max<int64_t>(chunk, 1);
  double rowChunks = double(std::max<int64_t>(1, ceilDiv(p.m, chunkRows)));
  if (!packed)
    work.right =
        double(batches) * rowChunks * double(roundUp(p.n, gemm::kTileCols)) * double(p.k);
  work.store = double(batches) * double(p.m) * double(p.n) * sumBlocks(p.k);
  return work;
}

KernelWork attentionWork(const AttentionParams &p, int64_t products) {
  KernelWork work;
  work.kind = WorkKind::Product;
  work.operandType = p.type;
  double heads = double(p.batch) * double(p.heads), pairs = 0, packed = 0, visible = 0;
  for (int64_t i = 0; i < p.queries; i += attention::kQueries) {
    int64_t rows = std::min(attention::kQueries, p.queries - i);
    auto seen = [&](int64_t query) {
      return p.causal ? std::clamp<int64_t>(query + 1 + p.offset, 0, p.keys) : p.keys;
    };
    int64_t end = seen(i + rows - 1),
            keys = std::min(p.keys, roundUp(end, attention::kKeys));
    // Halves of a block see what their last query sees.
    int64_t half = std::min<int64_t>(rows, attention::kQueries / 2);
    pairs += double(roundUp(half, 16)) * double(seen(i + half - 1)) +
             double(roundUp(rows - half, 16)) * double(end);
    visible +=
        double(half) * double(seen(i + half - 1)) + double(rows - half) * double(end);
    packed += double(keys + rows);
  }
  double depth = double(p.depth + p.valueDepth) / 2 * double(products);
  work.flops = 2 * heads * visible * depth;
  work.tileFlops = 2 * heads * pairs * depth;
  work.left = heads * packed * double(p.depth + p.valueDepth) / 2;
  work.right = work.left;
  work.store = heads * double(p.queries) * double(p.valueDepth);
  // Results of the gradient are as large as what it reads beside dout and out.
  double queryRows = heads * double(p.queries) * double(p.depth + p.valueDepth);
  double keyRows = double(p.batch) * double(p.kvHeads) * double(p.keys) *
                   double(p.depth + p.valueDepth);
  work.bytes =
      (queryRows + keyRows) * double(formatBytes(p.type)) * (products > 2 ? 2.0 : 1.0);
  work.rows = double(p.queries), work.cols = double(p.keys), work.depth = depth;
  work.batches = heads;
  return work;
}

KernelWork convWork(const ConvParams &p, bool inputGrad) {
  const ConvGeometry &g = p.g;
  KernelWork work;
  work.kind = WorkKind::Conv;
  work.operandType = multiplied(p.sourceType, p.wType);
  int64_t channels = (inputGrad ? g.c : g.m) / g.groups;
  int64_t summed = (inputGrad ? g.m : g.c) / g.groups;
  int64_t pixels = volume(inputGrad ? g.in : g.out);
  // The input gradient takes the taps that reach an element only.
  int64_t taps = volume(g.kernel);
  int64_t depth =
      summed * (inputGrad ? std::max<int64_t>(1, taps / volume(g.stride)) : taps);
  double images = double(g.n) * double(g.groups);
  int64_t blocks =
      ceilDiv(channels, std::max<int64_t>(1, std::min(p.unitChannels, channels)));
  work.rows = double(channels), work.cols = double(pixels), work.depth = double(depth);
  work.batches = images;
  work.flops = 2.0 * double(g.n) * double(volume(g.out)) * double(g.m) *
               double(g.c / g.groups) * double(taps);
  double together = double(convUnitImages(p)); // images whose pixels share tiles
  int64_t columns = roundUp(pixels * convUnitImages(p), gemm::kTileCols);
  work.tileFlops = 2.0 * images * double(roundUp(channels, gemm::kTileRows)) *
                   double(columns) / together * double(depth);
  // Every unit packs its rows of weights.
  work.left = double(ceilDiv(g.n, convUnitImages(p))) * double(g.groups) *
              double(channels) * double(depth);
  work.right = images * double(blocks) * double(pixels) * double(depth);
  work.store = images * double(channels) * double(pixels) * sumBlocks(depth);
  return work;
}

KernelWork convWeightGradWork(const ConvWeightGradParams &p) {
  const ConvGeometry &g = p.g;
  KernelWork work;
  work.kind = WorkKind::ConvWeightGrad;
  work.operandType = multiplied(p.xType, p.dyType);
  int64_t rows = g.m / g.groups, cols = g.c / g.groups * volume(g.kernel);
  int64_t depth = g.n * volume(g.out);
  int64_t colBlocks = p.unitCols > 0 ? ceilDiv(cols, p.unitCols) : 1;
  work.rows = double(rows), work.cols = double(cols), work.depth = double(depth);
  work.batches = double(g.groups);
  work.flops = 2.0 * double(depth) * double(g.groups) * double(rows) * double(cols);
  work.tileFlops = 2.0 * double(g.groups) *
                   double(tiled(rows, p.unitRows, gemm::kTileRows)) *
                   double(tiled(cols, p.unitCols, gemm::kTileCols)) * double(depth);
  work.left = double(g.groups) * double(rows) * double(depth) * double(colBlocks);
  work.right = double(g.groups) * double(cols) * double(depth);
  work.store = double(g.groups) * double(rows) * double(cols) * sumBlocks(depth);
  return work;
}

KernelWork workOf(std::string_view kernel, const int64_t *params, int64_t chunk) {
  if (kernel == "gemm_f32" || kernel == "gemm_packed_f32")
    return gemmWork(unpackParams<GemmParams>(params), kernel == "gemm_packed_f32", chunk);
  if (kernel == "gemm_splitk_f32")
    return splitKWork(unpackParams<GemmSplitKParams>(params));
  if (kernel == "conv_forward_f32" || kernel == "conv_input_grad_f32")
    return convWork(unpackParams<ConvParams>(params), kernel == "conv_input_grad_f32");
  if (kernel == "attention_f32")
    return attentionWork(unpackParams<AttentionParams>(params), 2);
  if (kernel == "attention_grad_f32")
    return attentionWork(unpackParams<AttentionGradParams>(params).of, 5);
  if (kernel == "conv_weight_grad_f32")
    return convWeightGradWork(unpackParams<ConvWeightGradParams>(params));
  if (kernel == "gather")
    return gatherWork(unpackParams<GatherParams>(params));
  KernelWork work;
  // Pools read their windows row by row, as fast as copies.
  bool moves = kernel == "copy_strided" || kernel == "fill" ||
               kernel == "sum_slices_f32" || kernel.find("pack") != kernel.npos ||
               kernel.find("pool") != kernel.npos;
  work.kind = moves ? WorkKind::Move : WorkKind::Index;
  return work;
}

} // namespace sluice
