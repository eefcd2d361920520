#pragma once
// Fused attention: a block of queries against all blocks of keys, scores in the worker's
// scratch (the online softmax of Milakov and Gimelshein, 2018, in the order of
// FlashAttention).

#include "kernels/cpu/AttentionBlock.h"

namespace sluice::SLUICE_LEVEL {

/// What a worker holds of one block of queries.
template <typename Form> struct ForwardScratch {
  float *q, *k, *v, *scores, *out, *rows, *most, *sum, *factor;
  float *effects;

  ForwardScratch(const AttentionParams &p, void *from) {
    auto *next = static_cast<float *>(from);
    auto take = [&next](int64_t count) {
      float *at = next;
      next += count * kQueries;
      return at;
    };
    q = take(Form::steps(p.depth)), k = take(Form::steps(p.depth));
    v = take(p.valueDepth);
    scores = take(kKeys), out = take(p.valueDepth), rows = take(p.valueDepth);
    most = take(1), sum = take(1), factor = take(1), take(1);
    effects = next;
  }
};

/// Scores of N vectors of lanes become e^(t - m), and the statistics of their rows go on.
template <typename Form, int N>
void softmaxLanes(const BlockEffects &effects, const ForwardScratch<Form> &s, Vec scale,
                  int64_t keys, int64_t lane) {
  const Vec none = splat(-__builtin_huge_valf());
  Vec before[N], largest[N], base[N], sum[N];
  for (int n = 0; n < N; ++n)
    before[n] = largest[n] = load(s.most + lane + n * kLanes);
  for (int64_t k = 0; k < keys; ++k)
    for (int n = 0; n < N; ++n) {
      float *score = s.scores + k * kQueries + lane + n * kLanes;
      Vec t = load(score);
      if (!Form::kScalesQueries)
        t = mul(t, scale);
      t = effects.masked(t, k, lane + n * kLanes);
      store(score, t);
      largest[n] = larger(t, largest[n]);
    }
  // Where nothing was seen yet, e^(-inf - 0) is 0.
  for (int n = 0; n < N; ++n)
    base[n] = select(isEqual(largest[n], none), zero(), largest[n]), sum[n] = zero();
  auto term = [&](int64_t k, int n) __attribute__((always_inline)) {
    int64_t at = lane + n * kLanes;
    Vec e = expOf(sub(load(s.scores + k * kQueries + at), base[n]));
    sum[n] = add(sum[n], e);
    return effects.drops() ? mul(e, effects.factor(k, at)) : e;
  };
  for (int64_t k = 0; k < keys; k += 2)
    for (int n = 0; n < N; ++n) {
      Vec first = term(k, n), second = k + 1 < keys ? term(k + 1, n) : zero();
      Form::putKeys(s.scores, lane + n * kLanes, k, first, second);
    }
  for (int n = 0; n < N; ++n) {
    int64_t at = lane + n * kLanes;
    Vec factor = expOf(sub(before[n], base[n]));
    store(s.factor + at, factor);
    store(s.sum + at, fma(load(s.sum + at), factor, sum[n]));
    store(s.most + at, largest[n]);
  }
}

template <typename Form> class Forward {
public:
  Forward(const AttentionParams &p, void *const *buffers)
      : p(p), q{buffers[0], p.type}, k{buffers[1], p.type}, v{buffers[2], p.type},
        out{buffers[resultsAt(p)], p.outType},
        stats(static_cast<float *>(buffers[resultsAt(p) + 1])),
        s(p, buffers[resultsAt(p) + 2]), effects(p, buffers + 3, s.effects) {}

  void unit(int64_t u) {
    int64_t blocks = attentionBlocks(p.queries);
    BlockPlace at{};
    at.b = u / blocks / p.heads, at.h = u / blocks % p.heads;
    at.query = u % blocks * kQueries;
    at.queries = least(kQueries, p.queries - at.query);
    int64_t cols = blockCols(at.queries);
    Form::packColumns(q.at(at.b * p.qBatch + at.h * p.qHead + at.query * p.qRow), p.qRow,
                      at.queries, p.depth, s.q);
    if (Form::kScalesQueries)
      scaleFloats(s.q, p.depth * kQueries, floatOf(p.scaleBits));
    for (int64_t i = 0; i < kQueries; ++i)
      s.most[i] = -__builtin_huge_valf(), s.sum[i] = 0.0f;
    std::memset(s.out, 0, p.valueDepth * kQueries * sizeof(float));
    int64_t end = visibleKeys(p, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += kKeys) {
      at.keys = least(kKeys, p.keys - at.key);
      block(at);
    }
    finish(at, cols);
  }

private:
  static int64_t resultsAt(const AttentionParams &p) {
    return 3 + (p.masked ? 1 : 0) + (p.dropout ? 3 : 0);
  }

  void block(const BlockPlace &at) {
    int64_t head = at.h / (p.heads / p.kvHeads);
    Form::packKeys(k.at(at.b * p.kBatch + head * p.kHead + at.key * p.kRow), p.kRow,
                   at.keys, p.depth, s.k);
    Form::packValues(v.at(at.b * p.vBatch + head * p.vHead + at.key * p.vRow), p.vRow,
                     at.keys, p.valueDepth, p.valueDepth, s.v);
    effects.enter(at);
    for (const BlockPart &part : BlockParts(p, at))
      if (part.keys > 0)
        partOfBlock(at, part);
  }

  void partOfBlock(const BlockPlace &at, const BlockPart &part) {
    float *scores = s.scores + part.lane;
    form.template multiply<1, Store::Set>({part.keys, part.lanes, p.depth, s.k,
                                           Form::stepOfKeys(p.depth), s.q + part.lane,
                                           kQueries, scores, kQueries});
    Vec scale = splat(floatOf(p.scaleBits));
    int64_t lane = part.lane, end = lane + part.lanes;
    for (; lane + 2 * kLanes <= end; lane += 2 * kLanes)
      softmaxLanes<Form, 2>(effects, s, scale, part.keys, lane);
    for (; lane < end; lane += kLanes)
      softmaxLanes<Form, 1>(effects, s, scale, part.keys, lane);
    Form::endKeys(scores, part.lanes, part.keys);
    form.template multiply<1, Store::Scale>({p.valueDepth, part.lanes, part.keys, s.v,
                                             Form::stepOfValues(p.valueDepth, at.keys),
                                             scores, kQueries, s.out + part.lane,
                                             kQueries, s.factor + part.lane});
  }

  void finish(const BlockPlace &at, int64_t cols) {
    for (int64_t lane = 0; lane < cols; lane += kLanes) {
      Vec sum = load(s.sum + lane);
      Vec share = select(isEqual(sum, zero()), zero(), div(splat(1.0f), sum));
      for (int64_t d = 0; d < p.valueDepth; ++d) {
        float *o = s.out + d * kQueries + lane;
        store(o, mul(load(o), share));
      }
    }
    float *row = stats + (at.b * p.heads + at.h) * 2 * p.queries + at.query;
    std::memcpy(row, s.most, at.queries * sizeof(float));
    std::memcpy(row + p.queries, s.sum, at.queries * sizeof(float));
    unpackColumns(s.out, at.queries, p.valueDepth, s.rows, p.valueDepth);
    Result to = out.at(at.b * p.outBatch + at.h * p.outHead + at.query * p.outRow);
    for (int64_t i = 0; i < at.queries; ++i)
      storeFloats(s.rows + i * p.valueDepth, to.at(i * p.outRow), p.valueDepth);
  }

  const AttentionParams &p;
  Operand q, k, v;
  Result out;
  float *stats;
  ForwardScratch<Form> s;
  BlockEffects effects;
  Form form;
};

} // namespace sluice::SLUICE_LEVEL
