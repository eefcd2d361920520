#pragma once
// The gradient of fused attention: probabilities of a pair of blocks are computed again
// from the statistics of their rows, and its five products done while they are in cache.

#include "kernels/cpu/AttentionBlock.h"

namespace sluice::SLUICE_LEVEL {

template <typename Form> struct BackwardScratch {
  int64_t cols, valueCols; // of whole rows
  float *q, *qRows, *dOut, *dOutRows, *dq, *k, *kRows, *v, *p, *ds, *dsRows;
  float *most, *share, *delta, *effects, *dk, *dv;

  BackwardScratch(const AttentionParams &a, void *from)
      : cols(attentionCols(a.depth)), valueCols(attentionCols(a.valueDepth)) {
    auto *next = static_cast<float *>(from);
    auto take = [&next](int64_t count) {
      float *at = next;
      next += count * kQueries;
      return at;
    };
    int64_t depth = Form::steps(a.depth), valueDepth = Form::steps(a.valueDepth);
    q = take(depth), k = take(depth), dOut = take(valueDepth), v = take(valueDepth);
    qRows = take(Form::steps(cols)), kRows = take(Form::steps(cols)), dq = take(cols);
    dOutRows = take(Form::steps(valueCols));
    p = take(kKeys), ds = take(kKeys);
    dsRows = Form::kRowOfDs == kQueries ? ds : take(kKeys / 2);
    most = take(1), share = take(1), delta = take(1), take(1);
    effects = take(kKeys * ((a.masked ? 1 : 0) + (a.dropout ? 1 : 0)));
    dk = next, dv = next + a.keys * cols;
  }
};

/// Scores in `p` and dout v in `ds` become p * drop and ds.
template <typename Form>
void gradientLanes(const BlockEffects &effects, const BackwardScratch<Form> &s, Vec scale,
                   int64_t keys, int64_t lane) {
  const Vec none = splat(-__builtin_huge_valf());
  Vec largest = load(s.most + lane), delta = load(s.delta + lane);
  Vec base =
      select(isEqual(largest, none), zero(), largest); // of a row that sees nothing
  Vec share = load(s.share + lane);
  struct Pair {
    Vec p, ds;
  };
  auto at = [&](int64_t k) __attribute__((always_inline)) {
    Vec t = load(s.p + k * kQueries + lane), dp = load(s.ds + k * kQueries + lane);
    if (!Form::kScalesQueries)
      t = mul(t, scale);
    Vec probability = mul(expOf(sub(effects.masked(t, k, lane), base)), share);
    Vec dropped = probability;
    if (effects.drops()) {
      Vec factor = effects.factor(k, lane);
      dropped = mul(probability, factor), dp = mul(dp, factor);
    }
    return Pair{dropped, mul(probability, sub(dp, delta))};
  };
  for (int64_t k = 0; k < keys; k += 2) {
    Pair first = at(k), second = k + 1 < keys ? at(k + 1) : Pair{zero(), zero()};
    Form::putQueries(s.p, lane, k, first.p, second.p);
    Form::putBoth(s.ds, s.dsRows, lane, k, first.ds, second.ds);
  }
}

template <typename Form> class Backward {
public:
  Backward(const AttentionGradParams &g, void *const *buffers)
      : g(g), p(g.of), q{buffers[0], p.type}, k{buffers[1], p.type},
        v{buffers[2], p.type}, dOut{buffers[3], g.doType}, out{buffers[4], p.outType},
        stats(static_cast<const float *>(buffers[5])),
        dq{results(buffers)[0], g.gradType}, dk{results(buffers)[1], g.gradType},
        dv{results(buffers)[2], g.gradType}, s(p, results(buffers)[3]),
        effects(p, buffers + 6, s.effects) {}

  void unit(int64_t u) {
    int64_t b = u / p.kvHeads, kvHead = u % p.kvHeads, group = p.heads / p.kvHeads;
    std::memset(s.dk, 0, p.keys * s.cols * sizeof(float));
    std::memset(s.dv, 0, p.keys * s.valueCols * sizeof(float));
    for (int64_t h = kvHead * group; h < (kvHead + 1) * group; ++h)
      for (int64_t i = 0; i < p.queries; i += kQueries)
        queryBlock({b, h, i, least(kQueries, p.queries - i), 0, 0}, kvHead);
    if (!Form::kScalesQueries)
      scaleFloats(s.dk, p.keys * s.cols, floatOf(p.scaleBits));
    for (int64_t j = 0; j < p.keys; ++j) {
      storeFloats(s.dk + j * s.cols,
                  dk.at(b * g.dkBatch + kvHead * g.dkHead + j * g.dkRow), p.depth);
      storeFloats(s.dv + j * s.valueCols,
                  dv.at(b * g.dvBatch + kvHead * g.dvHead + j * g.dvRow), p.valueDepth);
    }
  }

private:
  void *const *results(void *const *buffers) const {
    return buffers + 6 + (p.masked ? 1 : 0) + (p.dropout ? 3 : 0);
  }

  void queryBlock(BlockPlace at, int64_t kvHead) {
    packQueries(at);
    std::memset(s.dq, 0, p.depth * kQueries * sizeof(float));
    int64_t end = visibleKeys(p, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += kKeys) {
      at.keys = least(kKeys, p.keys - at.key);
      pair(at, kvHead);
    }
    scaleFloats(s.dq, p.depth * kQueries, floatOf(p.scaleBits));
    float *rows = s.q; // neither queries nor keys are needed any more
    unpackColumns(s.dq, at.queries, p.depth, rows, p.depth);
    for (int64_t i = 0; i < at.queries; ++i)
      storeFloats(rows + i * p.depth,
                  dq.at(at.b * g.dqBatch + at.h * g.dqHead + (at.query + i) * g.dqRow),
                  p.depth);
  }

  /// Queries and cotangents in both layouts, and the statistics of their rows.
  void packQueries(const BlockPlace &at) {
    Operand rows = q.at(at.b * p.qBatch + at.h * p.qHead + at.query * p.qRow);
    Form::packColumns(rows, p.qRow, at.queries, p.depth, s.q);
    Form::packWholeRows(rows, p.qRow, at.queries, p.depth, s.cols, s.qRows);
    if (Form::kScalesQueries) {
      scaleFloats(s.q, p.depth * kQueries, floatOf(p.scaleBits));
      scaleFloats(s.qRows, at.queries * s.cols, floatOf(p.scaleBits));
    }
    Operand results = out.at(at.b * p.outBatch + at.h * p.outHead + at.query * p.outRow);
    // `v` holds nothing yet.
    Form::packColumns(results, p.outRow, at.queries, p.valueDepth, s.v);
    Operand grads = dOut.at(at.b * g.doBatch + at.h * g.doHead + at.query * g.doRow);
    Form::packColumns(grads, g.doRow, at.queries, p.valueDepth, s.dOut);
    Form::packWholeRows(grads, g.doRow, at.queries, p.valueDepth, s.valueCols,
                        s.dOutRows);
    const float *row = stats + (at.b * p.heads + at.h) * 2 * p.queries + at.query;
    for (int64_t i = 0; i < kQueries; ++i) {
      float sum = i < at.queries ? row[p.queries + i] : 0.0f;
      s.most[i] = i < at.queries ? row[i] : 0.0f;
      s.share[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    for (int64_t lane = 0; lane < kQueries; lane += kLanes)
      store(s.delta + lane, sumOfProducts(s.dOut + lane, s.v + lane));
  }

  /// One chain over the values' depth.
  Vec sumOfProducts(const float *x, const float *y) const {
    Vec sum = zero();
    for (int64_t n = Form::whole(p.valueDepth); n > 0; --n, x += kQueries, y += kQueries)
      sum = Form::fused(load(x), load(y), sum);
    bool isLast = Form::kPaired && p.valueDepth % 2;
    return isLast ? Form::last(load(x), load(y), sum) : sum;
  }

  void pair(const BlockPlace &at, int64_t kvHead) {
    Operand keys = k.at(at.b * p.kBatch + kvHead * p.kHead + at.key * p.kRow);
    Form::packKeys(keys, p.kRow, at.keys, p.depth, s.k);
    Form::packValues(keys, p.kRow, at.keys, p.depth, s.cols, s.kRows);
    Form::packKeys(v.at(at.b * p.vBatch + kvHead * p.vHead + at.key * p.vRow), p.vRow,
                   at.keys, p.valueDepth, s.v);
    effects.enter(at);
    for (const BlockPart &part : BlockParts(p, at))
      if (part.keys > 0)
        gradientsOfScores(at, part);
    sumOverQueries(at);
  }

  /// Of a part's scores, and what they give to its queries.
  void gradientsOfScores(const BlockPlace &at, const BlockPart &part) {
    float *scores = s.p + part.lane, *ds = s.ds + part.lane;
    form.template multiply<1, Store::Set>({part.keys, part.lanes, p.depth, s.k,
                                           Form::stepOfKeys(p.depth), s.q + part.lane,
                                           kQueries, scores, kQueries});
    form.template multiply<1, Store::Set>({part.keys, part.lanes, p.valueDepth, s.v,
                                           Form::stepOfKeys(p.valueDepth),
                                           s.dOut + part.lane, kQueries, ds, kQueries});
    Vec scale = splat(floatOf(p.scaleBits));
    for (int64_t lane = 0; lane < part.lanes; lane += kLanes)
      gradientLanes<Form>(effects, s, scale, part.keys, part.lane + lane);
    Form::endKeys(ds, part.lanes, part.keys);
    form.template multiply<1, Store::Add>({p.depth, part.lanes, part.keys, s.kRows,
                                           Form::stepOfValues(s.cols, at.keys), ds,
                                           kQueries, s.dq + part.lane, kQueries});
  }

  /// What keys get: from all queries, or from those of the last part that see them.
  void sumOverQueries(const BlockPlace &at) {
    Form::endQueries(s.p, Form::kRowOfP, at.keys, at.queries);
    Form::endQueries(s.dsRows, Form::kRowOfDs, at.keys, at.queries);
    int64_t from = 0;
    for (const BlockPart &part : BlockParts(p, at)) {
      int64_t keys = part.keys - from, queries = at.queries - part.lane;
      int64_t first = Form::steps(part.lane); // steps before this part's
      const float *probabilities = s.p + from * Form::kRowOfP + first;
      const float *ds = s.dsRows + from * Form::kRowOfDs + first;
      int64_t row = at.key + from;
      form.template multiply<Form::kRowOfP, Store::Add>(
          {keys, s.valueCols, queries, probabilities, 0, s.dOutRows + first * s.valueCols,
           s.valueCols, s.dv + row * s.valueCols, s.valueCols});
      form.template multiply<Form::kRowOfDs, Store::Add>(
          {keys, s.cols, queries, ds, 0, s.qRows + first * s.cols, s.cols,
           s.dk + row * s.cols, s.cols});
      from = part.keys;
    }
  }

  const AttentionGradParams &g;
  const AttentionParams &p;
  Operand q, k, v, dOut, out;
  const float *stats;
  Result dq, dk, dv;
  BackwardScratch<Form> s;
  BlockEffects effects;
  Form form;
};

} // namespace sluice::SLUICE_LEVEL
