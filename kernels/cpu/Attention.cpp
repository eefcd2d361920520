// Fused attention: a block of queries against all blocks of keys, scores in the worker's
// scratch (the online softmax of Milakov and Gimelshein, 2018, in the order of
// FlashAttention).

#include "kernels/cpu/AttentionBlock.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// What a worker holds of one block of queries.
struct ForwardScratch {
  float *q, *k, *v, *scores, *out, *rows, *most, *sum, *factor;
  float *effects;

  ForwardScratch(const AttentionParams &p, void *from) {
    auto *next = static_cast<float *>(from);
    auto take = [&next](int64_t count) {
      float *at = next;
      next += count * kQueries;
      return at;
    };
    q = take(p.depth), k = take(p.depth), v = take(p.valueDepth);
    scores = take(kKeys), out = take(p.valueDepth), rows = take(p.valueDepth);
    most = take(1), sum = take(1), factor = take(1), take(1);
    effects = next;
  }
};

/// Scores become e^(t - m), and the statistics of their rows go on.
template <typename S>
void softmaxBlock(const BlockEffects &effects, const ForwardScratch &s, int64_t keys,
                  int64_t cols) {
  const Vec none = splat(-__builtin_huge_valf());
  for (int64_t lane = 0; lane < cols; lane += kLanes) {
    float *scores = s.scores + lane;
    Vec before = load(s.most + lane), most = before;
    for (int64_t k = 0; k < keys; ++k) {
      Vec t = effects.masked(load(scores + k * kQueries), k, lane);
      store(scores + k * kQueries, t);
      most = larger(t, most);
    }
    // Where nothing was seen yet, e^(-inf - 0) is 0.
    Vec base = select(isEqual(most, none), zero(), most), sum = zero();
    for (int64_t k = 0; k < keys; ++k) {
      Vec e = expOf(sub(load(scores + k * kQueries), base));
      sum = add(sum, e);
      if (effects.drops())
        e = mul(e, effects.factor(k, lane));
      store(scores + k * kQueries, roundedTo<S>(e));
    }
    Vec factor = expOf(sub(before, base));
    store(s.factor + lane, factor);
    store(s.sum + lane, fma(load(s.sum + lane), factor, sum));
    store(s.most + lane, most);
  }
}

template <typename S> class Forward {
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
    packColumns<S>(q.at(at.b * p.qBatch + at.h * p.qHead + at.query * p.qRow), p.qRow,
                   at.queries, p.depth, s.q);
    scaleFloats(s.q, p.depth * kQueries, floatOf(p.scaleBits));
    for (int64_t i = 0; i < kQueries; ++i)
      s.most[i] = -__builtin_huge_valf(), s.sum[i] = 0.0f;
    std::memset(s.out, 0, p.valueDepth * kQueries * sizeof(float));
    int64_t end = visibleKeys(p, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += kKeys) {
      at.keys = least(kKeys, p.keys - at.key);
      block(at, cols);
    }
    finish(at, cols);
  }

private:
  static int64_t resultsAt(const AttentionParams &p) {
    return 3 + (p.masked ? 1 : 0) + (p.dropout ? 3 : 0);
  }

  void block(const BlockPlace &at, int64_t cols) {
    int64_t head = at.h / (p.heads / p.kvHeads);
    packColumns<S>(k.at(at.b * p.kBatch + head * p.kHead + at.key * p.kRow), p.kRow,
                   at.keys, p.depth, s.k);
    packWholeRows<S>(v.at(at.b * p.vBatch + head * p.vHead + at.key * p.vRow), p.vRow,
                     at.keys, p.valueDepth, p.valueDepth, s.v);
    multiply<false, Store::Set>(
        {at.keys, cols, p.depth, s.k, kKeys, s.q, kQueries, s.scores, kQueries});
    effects.enter(at);
    softmaxBlock<S>(effects, s, at.keys, cols);
    multiply<false, Store::Scale>({p.valueDepth, cols, at.keys, s.v, p.valueDepth,
                                   s.scores, kQueries, s.out, kQueries, s.factor});
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
  ForwardScratch s;
  BlockEffects effects;
};

} // namespace

void attentionForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t) {
  auto p = readParams<AttentionParams>(params);
  byFormat(p.type, [&]<typename S>(S) {
    Forward<S> forward(p, buffers);
    for (int64_t u = begin; u < end; ++u)
      forward.unit(u);
  });
}

} // namespace sluice::SLUICE_LEVEL
