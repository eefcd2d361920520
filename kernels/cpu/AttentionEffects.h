#pragma once
// Masks and dropped elements of blocks of scores.

#include "kernels/AttentionParams.h"
#include "kernels/cpu/Pack.h"
#include "kernels/cpu/VectorExp.h"

namespace sluice::SLUICE_LEVEL {

constexpr int64_t kQueries = attention::kQueries, kKeys = attention::kKeys;
static_assert(kQueries == 64 && kKeys == 64, "blocks are packed as panels of 64");

SLUICE_INLINE float floatOf(int64_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits));
}

/// A block's place: of batch b and query head h.
struct BlockPlace {
  int64_t b, h;
  int64_t query, queries; ///< the first, how many
  int64_t key, keys;
};

/// How many keys the queries up to `last` see.
SLUICE_INLINE int64_t visibleKeys(const AttentionParams &p, int64_t last) {
  if (!p.causal)
    return p.keys;
  int64_t end = last + p.offset + 1;
  return end < 0 ? 0 : least(end, p.keys);
}

/// Masks and dropped elements of blocks of scores.
class BlockEffects {
public:
  /// `buffers`: the mask and the key of the random numbers, as far as there are any;
  /// `scratch` for a block of each.
  BlockEffects(const AttentionParams &p, void *const *buffers, float *scratch) : p(p) {
    if (p.masked) {
      mask = static_cast<const float *>(*buffers++);
      maskBlock = scratch;
      scratch += kKeys * kQueries;
    }
    if (p.dropout) {
      factors = scratch;
      seed = *static_cast<const uint64_t *>(buffers[0]);
      update = static_cast<uint32_t>(*static_cast<const uint64_t *>(buffers[1]));
      sample = *static_cast<const uint64_t *>(buffers[2]);
      ratio = floatOf(p.ratioBits);
      kept = ratio < 1.0f ? 1.0f / (1.0f - ratio) : 0.0f;
    }
  }

  /// Prepares a block: what follows is about it.
  void enter(const BlockPlace &place) {
    at = place;
    if (p.masked) {
      const float *from = mask + at.b * p.maskBatch + at.h * p.maskHead +
                          at.query * p.maskRow + at.key * p.maskCol;
      repeats = p.maskRow == 0;
      if (repeats)
        for (int64_t k = 0; k < at.keys; ++k)
          maskBlock[k] = from[k * p.maskCol];
      else
        packPanel<kQueries, F32>(from, p.maskRow, p.maskCol, at.queries, at.keys,
                                 maskBlock);
    }
    cuts = p.causal && at.key + at.keys - 1 > at.query + p.offset;
    if (p.dropout)
      draw();
  }

  /// Scores of key k in lanes [lane, lane + kLanes).
  __attribute__((always_inline)) Vec masked(Vec t, int64_t k, int64_t lane) const {
    if (mask)
      t = add(t, repeats ? splat(maskBlock[k]) : load(maskBlock + k * kQueries + lane));
    if (cuts) {
      int64_t first = at.key + k - p.offset - at.query - lane; // the first that sees it
      t = select(lanes(first, kLanes), t, splat(-__builtin_huge_valf()));
    }
    return t;
  }
  /// 0 or 1 / (1 - ratio).
  __attribute__((always_inline)) Vec factor(int64_t k, int64_t lane) const {
    return load(factors + k * kQueries + lane);
  }
  bool drops() const { return factors != nullptr; }

private:
  void draw();

  const AttentionParams &p;
  BlockPlace at{};
  const float *mask = nullptr;
  float *maskBlock = nullptr, *factors = nullptr;
  bool repeats = false, cuts = false;
  uint64_t seed = 0, sample = 0;
  uint32_t update = 0;
  float ratio = 0, kept = 0;
};

/// Philox4x32-10 (kernels/Philox.h) of 16 counters that differ in their first word.
struct Philox16 {
  uint32_t word[4][16];

  Philox16(const uint64_t *counters, uint32_t sample, uint32_t update, uint32_t id,
           uint64_t seed) {
    uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    for (int i = 0; i < 16; ++i) {
      word[0][i] = static_cast<uint32_t>(counters[i]);
      word[1][i] = sample, word[2][i] = update, word[3][i] = id;
    }
    for (int round = 0; round < 10; ++round, low += 0x9E3779B9u, high += 0xBB67AE85u)
      for (int i = 0; i < 16; ++i) {
        uint64_t first = uint64_t{0xD2511F53u} * word[0][i];
        uint64_t second = uint64_t{0xCD9E8D57u} * word[2][i];
        word[0][i] = static_cast<uint32_t>(second >> 32) ^ word[1][i] ^ low;
        word[1][i] = static_cast<uint32_t>(second);
        word[2][i] = static_cast<uint32_t>(first >> 32) ^ word[3][i] ^ high;
        word[3][i] = static_cast<uint32_t>(first);
      }
  }
  float uniform(int64_t w, int64_t i) const {
    return static_cast<float>(word[w][i] >> 8) * 0x1p-24f;
  }
};

/// The factors of the block. Four keys in a row share a counter where rows begin at whole
/// ones; else each element takes its own.
inline void BlockEffects::draw() {
  int64_t share = p.samples > 0 ? p.batch / p.samples : p.batch;
  auto of = static_cast<uint32_t>(p.samples > 0 ? sample + at.b / share : 0);
  auto id = static_cast<uint32_t>(p.id);
  uint64_t row = ((at.b % share) * p.heads + at.h) * p.queries + at.query;
  int64_t step = p.keys % 4 == 0 ? 4 : 1;
  for (int64_t k = 0; k < at.keys; k += step)
    for (int64_t lane = 0; lane < at.queries; lane += 16) {
      uint64_t counters[16], elements[16];
      for (int i = 0; i < 16; ++i) {
        elements[i] = (row + lane + i) * p.keys + at.key + k;
        counters[i] = elements[i] / 4;
      }
      Philox16 random(counters, of, update, id, seed);
      for (int64_t w = 0; w < step; ++w)
        for (int i = 0; i < 16; ++i) {
          int64_t word = step == 4 ? w : static_cast<int64_t>(elements[i] % 4);
          factors[(k + w) * kQueries + lane + i] =
              random.uniform(word, i) >= ratio ? kept : 0.0f;
        }
    }
}

} // namespace sluice::SLUICE_LEVEL
