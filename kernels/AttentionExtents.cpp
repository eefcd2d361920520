#include "kernels/AttentionExtents.h"
#include "kernels/Params.h"

namespace sluice::extent {
namespace {

/// Rows of unit stride of every head of a batch.
struct Heads {
  int64_t heads, rows, depth;
  int64_t batchStride, headStride, rowStride;
};

int64_t bytesOf(const AttentionParams &p, const Heads &x, int64_t type) {
  return reach({{p.batch, x.batchStride},
                {x.heads, x.headStride},
                {x.rows, x.rowStride},
                {x.depth, 1}},
               formatBytes(type));
}

bool isOverlapping(const AttentionParams &p, const Heads &x) {
  return !areDistinct({{p.batch, x.batchStride},
                       {x.heads, x.headStride},
                       {x.rows, x.rowStride},
                       {x.depth, 1}});
}

Heads queriesOf(const AttentionParams &p) {
  return {p.heads, p.queries, p.depth, p.qBatch, p.qHead, p.qRow};
}
Heads keysOf(const AttentionParams &p) {
  return {p.kvHeads, p.keys, p.depth, p.kBatch, p.kHead, p.kRow};
}
Heads valuesOf(const AttentionParams &p) {
  return {p.kvHeads, p.keys, p.valueDepth, p.vBatch, p.vHead, p.vRow};
}
Heads resultsOf(const AttentionParams &p) {
  return {p.heads, p.queries, p.valueDepth, p.outBatch, p.outHead, p.outRow};
}

bool areHeadStrides(std::initializer_list<Heads> all) {
  for (const Heads &x : all)
    if (!areStrides({x.batchStride, x.headStride, x.rowStride}))
      return false;
  return true;
}

bool checkAttention(const AttentionParams &p, Extents &e) {
  if (!areCounts(
          {p.batch, p.heads, p.kvHeads, p.queries, p.keys, p.depth, p.valueDepth}) ||
      product({p.batch, p.heads, p.queries + 1, p.keys + 1}) < 0 ||
      product({p.keys + attention::kKeys, p.depth + p.valueDepth + 128, 8}) < 0)
    return e.refuse("sizes must be at least 0 and their products at most 2^50");
  if (p.kvHeads < 1 || p.heads % p.kvHeads != 0)
    return e.refuse("'heads' must be a multiple of 'kvHeads'");
  if (!areHeadStrides({queriesOf(p), keysOf(p), valuesOf(p), resultsOf(p)}) ||
      !areStrides({p.maskBatch, p.maskHead, p.maskRow, p.maskCol}))
    return e.refuse("strides must be between 0 and 2^40");
  if (p.offset < -kMaxCount || p.offset > kMaxCount)
    return e.refuse("'offset' must be between -2^40 and 2^40");
  if (p.samples < 0 || (p.samples > 0 && p.batch % p.samples != 0))
    return e.refuse("'samples' must be 0 or divide the batch");
  if (!isFormat(p.type) || !isFormat(p.outType))
    return e.refuse("types must be 0 (f32), 1 (bf16) or 2 (f16)");
  return true;
}

void pushMask(const AttentionParams &p, Extents &e) {
  if (p.masked)
    e.input(reach({{p.batch, p.maskBatch},
                   {p.heads, p.maskHead},
                   {p.queries, p.maskRow},
                   {p.keys, p.maskCol}},
                  4));
}

void pushKey(const AttentionParams &p, Extents &e) {
  if (p.dropout)
    for (int i = 0; i < 3; ++i)
      e.input(8);
}

int64_t statsBytes(const AttentionParams &p) {
  return product({p.batch, p.heads, p.queries, 2, 4});
}

} // namespace

bool describeAttention(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<AttentionParams>(params);
  if (!checkAttention(p, e))
    return false;
  if (isOverlapping(p, resultsOf(p)))
    return e.refuse("elements of the result overlap");
  e.input(bytesOf(p, queriesOf(p), p.type));
  e.input(bytesOf(p, keysOf(p), p.type));
  e.input(bytesOf(p, valuesOf(p), p.type));
  pushMask(p, e);
  pushKey(p, e);
  e.output(bytesOf(p, resultsOf(p), p.outType));
  e.output(statsBytes(p));
  e.workspace(attentionWorkspace(p));
  return e.done(units, attentionUnits(p));
}

bool describeAttentionGrad(const int64_t *params, int64_t units, Extents &e) {
  auto g = unpackParams<AttentionGradParams>(params);
  const AttentionParams &p = g.of;
  if (!checkAttention(p, e))
    return false;
  Heads dOut{p.heads, p.queries, p.valueDepth, g.doBatch, g.doHead, g.doRow};
  Heads dq{p.heads, p.queries, p.depth, g.dqBatch, g.dqHead, g.dqRow};
  Heads dk{p.kvHeads, p.keys, p.depth, g.dkBatch, g.dkHead, g.dkRow};
  Heads dv{p.kvHeads, p.keys, p.valueDepth, g.dvBatch, g.dvHead, g.dvRow};
  if (!areHeadStrides({dOut, dq, dk, dv}))
    return e.refuse("strides must be between 0 and 2^40");
  if (!isFormat(g.doType) || !isFormat(g.gradType))
    return e.refuse("types must be 0 (f32), 1 (bf16) or 2 (f16)");
  if (isOverlapping(p, dq) || isOverlapping(p, dk) || isOverlapping(p, dv))
    return e.refuse("elements of a gradient overlap");
  e.input(bytesOf(p, queriesOf(p), p.type));
  e.input(bytesOf(p, keysOf(p), p.type));
  e.input(bytesOf(p, valuesOf(p), p.type));
  e.input(bytesOf(p, dOut, g.doType));
  e.input(bytesOf(p, resultsOf(p), p.outType));
  e.input(statsBytes(p));
  pushMask(p, e);
  pushKey(p, e);
  for (const Heads &grad : {dq, dk, dv})
    e.output(bytesOf(p, grad, g.gradType));
  e.workspace(attentionGradWorkspace(g));
  return e.done(units, attentionGradUnits(g));
}

} // namespace sluice::extent
