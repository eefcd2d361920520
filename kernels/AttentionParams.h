#pragma once
// Parameters of fused attention and its gradient.

#include "kernels/Formats.h"

#include <algorithm>
#include <cstdint>

namespace sluice {

namespace attention {
constexpr int64_t kQueries = 64; ///< rows of a block of queries
constexpr int64_t kKeys = 64;    ///< rows of a block of keys
} // namespace attention

/// attention: q [batch, heads, queries, depth], k [batch, kvHeads, keys, depth], v
/// [batch, kvHeads, keys, valueDepth], rows of unit stride; with `masked` a mask (f32,
/// any strides, 0 where it repeats); with `dropout` seed, update and sample (i64); then
/// out [batch, heads, queries, valueDepth], stats [batch, heads, 2, queries] (f32, dense)
/// and a workspace of each worker.
///
///   t = scale * q k + mask, -inf where key > query + offset (`causal`)
///   m = largest t,   l = sum over keys of e^(t - m),   stats = m and l
///   out = sum over keys of e^(t - m) * drop * v / l
///
/// Query head h reads key head h / (heads / kvHeads). A row of which every t is -inf
/// gives 0, an m of -inf and an l of 0. drop is 0 or 1 / (1 - ratio): element ((b * heads
/// + h) * queries + query) * keys + key of the sample's share of the batch is kept where
/// its Philox number is at least `ratio` (graph.dropout), keyed by sample `sample + b /
/// (batch / samples)`, or by 0 where `samples` is 0.
///
/// Bits: queries and keys in blocks of 64, keys in order. q is scaled in f32 before the
/// product, with bf16 the product is after it; a product is one chain of fma from 0 over
/// depth, or over the keys of a block. Maximum, sum and out of a row are carried from
/// block to block: with the new maximum m', out = fma(out, e^(m - m'), block). What no
/// query of a block sees is left out; where the first 32 queries of a block see fewer
/// keys of another than the rest, each half has its own. With 16-bit operands what is
/// multiplied by v is rounded to their type; with bf16 denormals count as zeros, operands
/// and results alike, as in products of bf16 (GemmParams.h). Level `amx` multiplies bf16
/// of depths from 32 on in the order of its products instead: scores start as 0, out as
/// out * e^(m - m'), and every 32 steps (filled up with zeros) add to them. Units: blocks
/// of queries, heads, batch (the slowest).
struct AttentionParams {
  int64_t batch = 1, heads = 1, kvHeads = 1, queries = 0, keys = 0;
  int64_t depth = 1, valueDepth = 1;
  int64_t qBatch = 0, qHead = 0, qRow = 0;
  int64_t kBatch = 0, kHead = 0, kRow = 0;
  int64_t vBatch = 0, vHead = 0, vRow = 0;
  int64_t outBatch = 0, outHead = 0, outRow = 0;
  int64_t masked = 0, maskBatch = 0, maskHead = 0, maskRow = 0, maskCol = 0;
  int64_t causal = 0, offset = 0;
  int64_t scaleBits = 0x3f800000; ///< of an f32
  int64_t dropout = 0, ratioBits = 0, id = 0, samples = 0;
  int64_t type = 0, outType = 0; ///< of q, k and v; of out
};

/// attention_grad: q, k, v, dout, out, stats, the mask and the random key as above; then
/// dq, dk, dv and a workspace. Probabilities are computed again from stats. With delta =
/// sum of dout * out over a row (one chain), dp = dout v * drop, ds = p * (dp - delta):
///   dq = scale * (ds k),   dk = ds (scale q),   dv = (p * drop) dout
/// Bits: pairs of blocks of 64 queries and 64 keys, keys the faster; each pair's sums
/// (chains of fma from 0) are added in this order, dk and dv over the group's query heads
/// too, one head after the other. Halves of blocks, scaled scores (and sums of dk) and
/// denormals as above. With 16-bit operands ds and p * drop are rounded to their type
/// before they are multiplied. Level `amx` as above; products start from the sums that
/// they are added to. Units: key heads, batch (the slower).
struct AttentionGradParams {
  AttentionParams of;
  int64_t doBatch = 0, doHead = 0, doRow = 0;
  int64_t dqBatch = 0, dqHead = 0, dqRow = 0;
  int64_t dkBatch = 0, dkHead = 0, dkRow = 0;
  int64_t dvBatch = 0, dvHead = 0, dvRow = 0;
  int64_t doType = 0, gradType = 0; ///< of dout; of dq, dk and dv
};

/// Level `amx` multiplies blocks on tiles, whose steps take 32 elements.
inline bool attentionFillsTiles(const AttentionParams &p) {
  return p.type == format::kBf16 && p.depth >= 32 && p.valueDepth >= 32;
}

inline int64_t attentionBlocks(int64_t rows) {
  return (rows + attention::kQueries - 1) / attention::kQueries;
}
inline int64_t attentionUnits(const AttentionParams &p) {
  return p.batch * p.heads * attentionBlocks(p.queries);
}
inline int64_t attentionGradUnits(const AttentionGradParams &p) {
  return p.of.batch * p.of.kvHeads;
}

/// Columns of a row that register tiles write whole.
inline int64_t attentionCols(int64_t depth) { return (depth + 15) / 16 * 16; }

/// Floats of the blocks: queries, keys and values (with whole rows of each), scores, out,
/// statistics of rows; scores' mask and dropped elements where there are any.
inline int64_t attentionWorkspace(const AttentionParams &p) {
  int64_t extra = (p.masked ? 1 : 0) + (p.dropout ? 1 : 0);
  int64_t rows = 2 * p.depth + 3 * p.valueDepth + attention::kKeys * (1 + extra) + 4;
  return rows * attention::kQueries * 4;
}
/// The same with both layouts of queries, keys and dout; and dk and dv of all keys.
inline int64_t attentionGradWorkspace(const AttentionGradParams &p) {
  const AttentionParams &a = p.of;
  int64_t extra = (a.masked ? 1 : 0) + (a.dropout ? 1 : 0);
  int64_t cols = attentionCols(a.depth), valueCols = attentionCols(a.valueDepth);
  int64_t rows = 2 * a.depth + 2 * a.valueDepth + 3 * cols + valueCols +
                 attention::kKeys * (2 + extra) + 4;
  return (rows * attention::kQueries + a.keys * (cols + valueCols)) * 4;
}

} // namespace sluice
