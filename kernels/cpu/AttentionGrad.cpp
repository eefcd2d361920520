// The gradient of fused attention: probabilities of a pair of blocks are computed again
// from the statistics of their rows, and its five products done while they are in cache.

#include "kernels/cpu/AttentionBlock.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {
namespace {

struct BackwardScratch {
  int64_t cols, valueCols; // of whole rows
  float *q, *qRows, *dOut, *dOutRows, *dq, *k, *kRows, *v, *p, *ds, *most, *share, *delta;
  float *effects, *dk, *dv;

  BackwardScratch(const AttentionParams &a, void *from)
      : cols(attentionCols(a.depth)), valueCols(attentionCols(a.valueDepth)) {
    auto *next = static_cast<float *>(from);
    auto take = [&next](int64_t count) {
      float *at = next;
      next += count * kQueries;
      return at;
    };
    q = take(a.depth), k = take(a.depth);
    dOut = take(a.valueDepth), v = take(a.valueDepth);
    qRows = take(cols), kRows = take(cols), dq = take(cols), dOutRows = take(valueCols);
    p = take(kKeys), ds = take(kKeys);
    most = take(1), share = take(1), delta = take(1), take(1);
    effects = take(kKeys * ((a.masked ? 1 : 0) + (a.dropout ? 1 : 0)));
    dk = next, dv = next + a.keys * cols;
  }
};

/// Scores in `p` and dout v in `ds` become p * drop and ds.
template <typename S>
void gradientBlock(const BlockEffects &effects, const BackwardScratch &s, int64_t keys,
                   int64_t cols) {
  const Vec none = splat(-__builtin_huge_valf());
  for (int64_t lane = 0; lane < cols; lane += kLanes) {
    Vec most = load(s.most + lane), delta = load(s.delta + lane);
    Vec base = select(isEqual(most, none), zero(), most); // of a row that sees nothing
    Vec share = load(s.share + lane);
    for (int64_t k = 0; k < keys; ++k) {
      float *p = s.p + k * kQueries + lane, *ds = s.ds + k * kQueries + lane;
      Vec e = expOf(sub(effects.masked(load(p), k, lane), base));
      Vec probability = mul(e, share);
      Vec dropped = probability, dp = load(ds);
      if (effects.drops()) {
        Vec factor = effects.factor(k, lane);
        dropped = mul(probability, factor), dp = mul(dp, factor);
      }
      store(p, roundedTo<S>(dropped));
      store(ds, roundedTo<S>(mul(probability, sub(dp, delta))));
    }
  }
}

template <typename S> class Backward {
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
    std::memset(s.dq, 0, at.queries * s.cols * sizeof(float));
    int64_t end = visibleKeys(p, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += kKeys) {
      at.keys = least(kKeys, p.keys - at.key);
      pair(at, kvHead);
    }
    scaleFloats(s.dq, at.queries * s.cols, floatOf(p.scaleBits));
    for (int64_t i = 0; i < at.queries; ++i)
      storeFloats(s.dq + i * s.cols,
                  dq.at(at.b * g.dqBatch + at.h * g.dqHead + (at.query + i) * g.dqRow),
                  p.depth);
  }

  /// Queries and cotangents in both layouts, and the statistics of their rows.
  void packQueries(const BlockPlace &at) {
    Operand rows = q.at(at.b * p.qBatch + at.h * p.qHead + at.query * p.qRow);
    packColumns<S>(rows, p.qRow, at.queries, p.depth, s.q);
    packWholeRows<S>(rows, p.qRow, at.queries, p.depth, s.cols, s.qRows);
    scaleFloats(s.q, p.depth * kQueries, floatOf(p.scaleBits));
    scaleFloats(s.qRows, at.queries * s.cols, floatOf(p.scaleBits));
    Operand results = out.at(at.b * p.outBatch + at.h * p.outHead + at.query * p.outRow);
    // `v` holds nothing yet.
    packPanelOf<kQueries>(results, p.outRow, 1, at.queries, p.valueDepth, s.v);
    Operand grads = dOut.at(at.b * g.doBatch + at.h * g.doHead + at.query * g.doRow);
    packPanelOf<kQueries>(grads, g.doRow, 1, at.queries, p.valueDepth, s.dOut);
    byFormat(g.doType, [&]<typename D>(D) {
      packWholeRows<D>(grads, g.doRow, at.queries, p.valueDepth, s.valueCols, s.dOutRows);
    });
    const float *row = stats + (at.b * p.heads + at.h) * 2 * p.queries + at.query;
    for (int64_t i = 0; i < kQueries; ++i) {
      float sum = i < at.queries ? row[p.queries + i] : 0.0f;
      s.most[i] = i < at.queries ? row[i] : 0.0f;
      s.share[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) {
      Vec sum = zero();
      for (int64_t d = lane; d < p.valueDepth * kQueries; d += kQueries)
        sum = fma(load(s.dOut + d), load(s.v + d), sum);
      store(s.delta + lane, sum);
    }
  }

  void pair(const BlockPlace &at, int64_t kvHead) {
    int64_t lanes = blockCols(at.queries);
    Operand keys = k.at(at.b * p.kBatch + kvHead * p.kHead + at.key * p.kRow);
    packColumns<S>(keys, p.kRow, at.keys, p.depth, s.k);
    packWholeRows<S>(keys, p.kRow, at.keys, p.depth, s.cols, s.kRows);
    packColumns<S>(v.at(at.b * p.vBatch + kvHead * p.vHead + at.key * p.vRow), p.vRow,
                   at.keys, p.valueDepth, s.v);
    multiply<false, Store::Set>(
        {at.keys, lanes, p.depth, s.k, kKeys, s.q, kQueries, s.p, kQueries});
    multiply<false, Store::Set>(
        {at.keys, lanes, p.valueDepth, s.v, kKeys, s.dOut, kQueries, s.ds, kQueries});
    effects.enter(at);
    gradientBlock<S>(effects, s, at.keys, lanes);
    multiply<true, Store::Add>({at.keys, s.valueCols, at.queries, s.p, 0, s.dOutRows,
                                s.valueCols, s.dv + at.key * s.valueCols, s.valueCols});
    multiply<true, Store::Add>({at.keys, s.cols, at.queries, s.ds, 0, s.qRows, s.cols,
                                s.dk + at.key * s.cols, s.cols});
    multiply<false, Store::Add>(
        {at.queries, s.cols, at.keys, s.ds, kQueries, s.kRows, s.cols, s.dq, s.cols});
  }

  const AttentionGradParams &g;
  const AttentionParams &p;
  Operand q, k, v, dOut, out;
  const float *stats;
  Result dq, dk, dv;
  BackwardScratch s;
  BlockEffects effects;
};

} // namespace

void attentionGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t) {
  auto g = readParams<AttentionGradParams>(params);
  byFormat(g.of.type, [&]<typename S>(S) {
    Backward<S> backward(g, buffers);
    for (int64_t u = begin; u < end; ++u)
      backward.unit(u);
  });
}

} // namespace sluice::SLUICE_LEVEL
