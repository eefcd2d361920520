// Fused attention and its gradient against whole rows of scores in double.

#include "kernels/reference/Attention.h"
#include "ir/graph/Philox.h"
#include "tests/kernels/TileCase.h"

#include <array>
#include <cmath>

namespace sluice::test {
namespace {

enum class MaskKind { None, Keys, Full, HidesRows, LowersRows };

struct Shape {
  int64_t batch, heads, kvHeads, queries, keys, depth, valueDepth;
  int64_t causal = -1; // offset, or none
  MaskKind mask = MaskKind::None;
  double ratio = 0;
  int64_t samples = 0;
};

uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

constexpr uint64_t kSeed = 0x123456789abcdef, kUpdate = 7, kSample = 11, kId = 5;

/// q, k and v as a joint projection [batch, rows, heads, depth] with a gap behind each
/// row, so that strides are no accident.
struct Case {
  AttentionGradParams g;
  AttentionParams &p = g.of;
  std::vector<float> q, k, v, mask, dOut;
  reference::AttentionInput in;

  Case(const Shape &s, uint32_t seed, int64_t type = format::kF32) {
    std::mt19937 rng(seed);
    p.batch = s.batch, p.heads = s.heads, p.kvHeads = s.kvHeads;
    p.queries = s.queries, p.keys = s.keys;
    p.depth = s.depth, p.valueDepth = s.valueDepth;
    p.scaleBits = bitsOf(1 / std::sqrt(float(s.depth)));
    p.causal = s.causal >= 0, p.offset = std::max<int64_t>(s.causal, 0);
    p.type = p.outType = g.doType = g.gradType = type;
    place(s.heads, s.queries, s.depth, 3, p.qBatch, p.qHead, p.qRow);
    place(s.kvHeads, s.keys, s.depth, 5, p.kBatch, p.kHead, p.kRow);
    place(s.kvHeads, s.keys, s.valueDepth, 1, p.vBatch, p.vHead, p.vRow);
    place(s.heads, s.queries, s.valueDepth, 2, p.outBatch, p.outHead, p.outRow);
    place(s.heads, s.queries, s.valueDepth, 0, g.doBatch, g.doHead, g.doRow);
    place(s.heads, s.queries, s.depth, 4, g.dqBatch, g.dqHead, g.dqRow);
    place(s.kvHeads, s.keys, s.depth, 0, g.dkBatch, g.dkHead, g.dkRow);
    place(s.kvHeads, s.keys, s.valueDepth, 6, g.dvBatch, g.dvHead, g.dvRow);
    q = loaded(stored(randomFloats(rng, s.batch * p.qBatch), type), type);
    k = loaded(stored(randomFloats(rng, s.batch * p.kBatch), type), type);
    v = loaded(stored(randomFloats(rng, s.batch * p.vBatch), type), type);
    for (float &x : q)
      x *= 4; // sharp distributions
    dOut = loaded(stored(randomFloats(rng, s.batch * g.doBatch), type), type);
    makeMask(s, rng);
    in.q.assign(q.begin(), q.end()), in.k.assign(k.begin(), k.end());
    in.v.assign(v.begin(), v.end()), in.mask.assign(mask.begin(), mask.end());
    drop(s);
  }

  /// On all levels of one order of sums: those without tiles, or `onTiles`.
  std::vector<Bytes> run(bool isGrad, const std::vector<Bytes> &results,
                         bool onTiles = false) const {
    KernelCase c{isGrad ? "attention_grad_f32" : "attention_f32",
                 isGrad ? packParams(g) : packParams(p),
                 isGrad ? attentionGradUnits(g) : attentionUnits(p),
                 {stored(q, p.type), stored(k, p.type), stored(v, p.type)}};
    auto add = [&c](const Bytes &bytes) { c.operands.push_back(bytes); };
    if (isGrad) {
      add(stored(dOut, g.doType));
      add(results[0]), add(results[1]);
    }
    if (p.masked)
      add(toBytes(mask));
    if (p.dropout)
      for (uint64_t number : {kSeed, kUpdate, kSample})
        add(toBytes(std::vector<uint64_t>{number}));
    size_t first = c.operands.size();
    int64_t bytes = formatBytes(p.type);
    if (isGrad) {
      add(poisoned(p.batch * g.dqBatch * bytes));
      add(poisoned(p.batch * g.dkBatch * bytes));
      add(poisoned(p.batch * g.dvBatch * bytes));
      add(Bytes(attentionGradWorkspace(g)));
    } else {
      add(poisoned(p.batch * p.outBatch * bytes));
      add(poisoned(p.batch * p.heads * p.queries * 8));
      add(Bytes(attentionWorkspace(p)));
    }
    trim(c, first, isGrad);
    std::vector<Bytes> after = onTiles ? runOnTiles(c) : runEverywhere(c);
    return {after.begin() + first, after.end() - 1};
  }

private:
  static void place(int64_t heads, int64_t rows, int64_t depth, int64_t gap,
                    int64_t &batchStride, int64_t &headStride, int64_t &rowStride) {
    headStride = depth, rowStride = heads * depth + gap, batchStride = rows * rowStride;
  }

  /// Operands end with the last element that is used.
  void trim(KernelCase &c, size_t first, bool isGrad) const {
    std::vector<OperandExtent> extents;
    std::string why;
    ASSERT_TRUE(describeBuiltinLaunch(c.name, c.params.data(), c.params.size(), c.units,
                                      extents, why))
        << why;
    ASSERT_EQ(extents.size(), c.operands.size());
    for (size_t i = 0; i < extents.size(); ++i)
      c.operands[i].resize(extents[i].bytes);
    (void)first, (void)isGrad;
  }

  void makeMask(const Shape &s, std::mt19937 &rng) {
    if (s.mask == MaskKind::None)
      return;
    p.masked = 1;
    if (s.mask == MaskKind::Keys) { // [batch, 1, 1, keys]
      p.maskBatch = s.keys, p.maskCol = 1;
      mask.resize(s.batch * s.keys);
    } else { // [1, heads, queries, keys]
      p.maskHead = s.queries * s.keys, p.maskRow = s.keys, p.maskCol = 1;
      mask.resize(s.heads * s.queries * s.keys);
    }
    // Below every score, and yet not -inf: a row of these is uniform.
    bool lowers = s.mask == MaskKind::LowersRows;
    float hidden = lowers ? std::numeric_limits<float>::lowest()
                          : -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = rng() % 3 == 0 ? hidden : float(rng() % 100) / 50;
    bool rows = lowers || s.mask == MaskKind::HidesRows;
    for (int64_t i = 0; rows && i < s.queries * s.keys; ++i)
      if (i / s.keys % 3 == 0)
        mask[i] = hidden;
  }

  void drop(const Shape &s) {
    if (s.ratio == 0)
      return;
    p.dropout = 1, p.ratioBits = bitsOf(float(s.ratio)), p.id = kId;
    p.samples = s.samples;
    int64_t share = s.samples > 0 ? s.batch / s.samples : s.batch;
    int64_t each = share * s.heads * s.queries * s.keys;
    in.keep.resize(s.batch * s.heads * s.queries * s.keys);
    for (int64_t e = 0; e < int64_t(in.keep.size()); ++e) {
      graph::RandomKey key{kSeed, kUpdate, 0, kId};
      key.sample = s.samples > 0 ? kSample + e / each : 0;
      bool keep = graph::philoxUniform(key, e % each) >= float(s.ratio);
      in.keep[e] = keep ? 1 / (1 - s.ratio) : 0;
    }
  }
};

/// A dense reference at the places of a strided result; NaN where nothing is written.
std::vector<double> spread(const std::vector<double> &dense, int64_t batch, int64_t heads,
                           int64_t rows, int64_t depth, int64_t batchStride,
                           int64_t headStride, int64_t rowStride, size_t size) {
  std::vector<double> all(size, std::nan(""));
  size_t next = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t d = 0; d < depth; ++d)
          all[b * batchStride + h * headStride + i * rowStride + d] = dense[next++];
  return all;
}

/// Elements that are NaN in `expected` must be poison still.
void expectClose(const std::vector<double> &expected, const Bytes &actual, int64_t type,
                 double tolerance) {
  Bytes wide = widened(actual, type);
  std::vector<float> values = fromBytes<float>(wide);
  Bytes before = widened(poisoned(actual.size()), type);
  ASSERT_EQ(values.size(), expected.size());
  expectNear(expected, before, wide, tolerance);
}

void check(const Shape &s, int64_t type = format::kF32, double tolerance = 2e-6,
           bool onTiles = false) {
  Case c(s, 17 + s.queries, type);
  const AttentionParams &p = c.p;
  auto forward = c.run(false, {}, onTiles);
  auto expected = reference::attention(p, c.in);
  auto at = [&](const std::vector<double> &dense, int64_t heads, int64_t rows,
                int64_t depth, int64_t batchStride, int64_t headStride, int64_t rowStride,
                const Bytes &actual) {
    expectClose(spread(dense, p.batch, heads, rows, depth, batchStride, headStride,
                       rowStride, actual.size() / formatBytes(type)),
                actual, type, tolerance);
  };
  at(expected.out, p.heads, p.queries, p.valueDepth, p.outBatch, p.outHead, p.outRow,
     forward[0]);
  auto stats = fromBytes<float>(forward[1]);
  ASSERT_EQ(stats.size(), expected.stats.size());
  for (size_t i = 0; i < stats.size(); ++i)
    if (std::isinf(expected.stats[i]) || expected.stats[i] < -1e30)
      EXPECT_EQ(stats[i], static_cast<float>(expected.stats[i])) << i;
    else
      EXPECT_NEAR(stats[i], expected.stats[i], 1e-5 * (1 + std::abs(expected.stats[i])))
          << i;

  std::vector<double> dOut; // dense
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.queries; ++i)
        for (int64_t d = 0; d < p.valueDepth; ++d)
          dOut.push_back(c.dOut[b * c.g.doBatch + h * c.g.doHead + i * c.g.doRow + d]);
  auto gradient = reference::attentionGrad(p, c.in, dOut);
  auto grads = c.run(true, forward, onTiles);
  tolerance *= 10;
  at(gradient.dq, p.heads, p.queries, p.depth, c.g.dqBatch, c.g.dqHead, c.g.dqRow,
     grads[0]);
  at(gradient.dk, p.kvHeads, p.keys, p.depth, c.g.dkBatch, c.g.dkHead, c.g.dkRow,
     grads[1]);
  at(gradient.dv, p.kvHeads, p.keys, p.valueDepth, c.g.dvBatch, c.g.dvHead, c.g.dvRow,
     grads[2]);
}

TEST(Attention, RaggedBlocksOfQueriesAndKeys) {
  for (int64_t queries : {1, 5, 63, 64, 65, 150})
    for (int64_t keys : {1, 7, 64, 100, 129})
      check({1, 2, 2, queries, keys, 24, 24});
}

TEST(Attention, SizesOfHeads) {
  for (auto [depth, valueDepth] : {std::pair<int64_t, int64_t>{8, 8},
                                   {1, 3},
                                   {13, 40},
                                   {33, 32},
                                   {64, 64},
                                   {80, 128},
                                   {256, 256}})
    check({1, 2, 1, 37, 70, depth, valueDepth});
}

TEST(Attention, GroupsShareKeyHeads) {
  check({2, 6, 2, 66, 70, 16, 16, 4});
  check({1, 4, 1, 20, 90, 32, 8});
}

TEST(Attention, CausalLeavesBlocksOut) {
  check({1, 2, 2, 200, 200, 16, 16, 0});
  check({1, 1, 1, 70, 200, 16, 16, 130});
  check({1, 1, 1, 130, 70, 16, 16, 3});
}

TEST(Attention, MasksAndRowsThatSeeNothing) {
  for (MaskKind mask :
       {MaskKind::Keys, MaskKind::Full, MaskKind::HidesRows, MaskKind::LowersRows})
    for (int64_t causal : {-1, 0})
      check({2, 2, 2, 70, 70, 16, 24, causal, mask});
}

TEST(Attention, DropsWhatDropoutWould) {
  check({4, 2, 2, 70, 68, 16, 16, -1, MaskKind::None, 0.25, 2});
  check({4, 2, 1, 33, 67, 16, 16, 0, MaskKind::Full, 0.5, 4}); // rows at any word
  check({2, 2, 2, 20, 20, 8, 8, -1, MaskKind::None, 0.1, 0});
}

TEST(Attention, NothingToDo) {
  check({0, 2, 2, 5, 5, 8, 8});
  check({1, 2, 2, 5, 0, 8, 8});
  check({1, 2, 2, 0, 5, 8, 8});
}

TEST(Attention, SixteenBits) {
  for (int64_t type : kHalfFormats) {
    double tolerance = type == format::kBf16 ? 1e-2 : 2e-3;
    check({1, 2, 2, 70, 100, 24, 24, 0}, type, tolerance);
    check({2, 4, 2, 33, 67, 64, 40, -1, MaskKind::Keys, 0.25, 2}, type, tolerance);
  }
}

/// Levels agree on every tail of pairs, and on what has too few elements for them.
TEST(Attention, PairsOfBf16) {
  for (auto [queries, keys] : {std::pair<int64_t, int64_t>{1, 7}, {33, 65}, {79, 64}})
    for (auto [depth, valueDepth] :
         {std::pair<int64_t, int64_t>{4, 5}, {17, 4}, {3, 16}, {16, 3}})
      check({1, 2, 1, queries, keys, depth, valueDepth}, format::kBf16, 1.5e-2);
}

/// Halves of blocks that end at any key, and rows that see nothing before others do.
TEST(Attention, CausalHalvesOfBlocks) {
  for (int64_t type : {format::kF32, format::kBf16})
    for (auto [queries, keys, offset] : {std::array<int64_t, 3>{64, 64, 0},
                                         {50, 40, 0},
                                         {64, 96, 3},
                                         {100, 130, 33},
                                         {70, 20, 0}})
      check({1, 1, 1, queries, keys, 8, 8, offset}, type,
            type == format::kF32 ? 2e-6 : 1e-2);
}

/// Values whose products are denormal, or only just not: all levels flush them alike.
TEST(Attention, PairsFlushDenormals) {
  for (float size : {0x1p-60f, 0x1p-63f, 0x1p-64f, 0x1p-126f}) {
    Case c({1, 2, 2, 37, 67, 15, 17, 0}, 3, format::kBf16);
    for (std::vector<float> *x : {&c.q, &c.k, &c.v, &c.dOut})
      for (float &value : *x)
        value *= size;
    c.run(true, c.run(false, {}));
  }
}

TEST(AttentionTiles, RaggedBlocksOfQueriesAndKeys) {
  for (auto [queries, keys] : {std::pair<int64_t, int64_t>{1, 7},
                               {5, 33},
                               {17, 64},
                               {63, 65},
                               {70, 31},
                               {48, 48},
                               {130, 2}})
    check({1, 2, 1, queries, keys, 33, 40}, format::kBf16, 1.5e-2, true);
}

TEST(AttentionTiles, SizesOfHeads) {
  for (auto [depth, valueDepth] :
       {std::pair<int64_t, int64_t>{32, 32}, {64, 64}, {47, 65}, {80, 33}})
    check({1, 1, 1, 37, 70, depth, valueDepth}, format::kBf16, 1.5e-2, true);
}

TEST(AttentionTiles, MasksCausalHalvesAndDropout) {
  for (auto [queries, keys, offset] : {std::array<int64_t, 3>{64, 64, 0},
                                       {50, 40, 0},
                                       {64, 96, 3},
                                       {70, 130, 33},
                                       {70, 20, 0}})
    check({1, 1, 1, queries, keys, 32, 32, offset}, format::kBf16, 1.5e-2, true);
  for (MaskKind mask : {MaskKind::Keys, MaskKind::HidesRows})
    check({1, 2, 2, 40, 70, 32, 40, 0, mask}, format::kBf16, 1.5e-2, true);
  check({2, 4, 2, 33, 67, 64, 40, -1, MaskKind::Keys, 0.25, 2}, format::kBf16, 1.5e-2,
        true);
}

/// Products that are denormal, or only just not: the emulated unit and the code for the
/// processor's agree, whatever the width of their vectors.
TEST(AttentionTiles, FlushDenormals) {
  for (float size : {0x1p-60f, 0x1p-64f, 0x1p-126f}) {
    Case c({1, 2, 2, 37, 67, 33, 32, 0}, 3, format::kBf16);
    for (std::vector<float> *x : {&c.q, &c.k, &c.v, &c.dOut})
      for (float &value : *x)
        value *= size;
    c.run(true, c.run(false, {}, true), true);
  }
}

/// An infinite key that no query attends to leaves its own gradient finite where a block
/// has fewer queries than lanes.
TEST(AttentionTiles, LanesOfNoQueryMakeNothingInfinite) {
  Case c({1, 1, 1, 5, 4, 32, 32}, 4, format::kBf16);
  for (float &q : c.q)
    q = -1;
  for (int64_t d = 0; d < 32; ++d)
    c.k[d] = std::numeric_limits<float>::infinity();
  auto grads = c.run(true, c.run(false, {}, true), true);
  for (float value : loaded(grads[2], format::kBf16))
    EXPECT_FALSE(std::isinf(value));
  EXPECT_EQ(loaded(grads[2], format::kBf16)[0], 0);
}

/// Other formats and heads that fill no step have the bits of the levels below.
TEST(AttentionTiles, TheRestIsThatOfTheLevelBelow) {
  Case wide({1, 2, 2, 20, 30, 33, 40}, 5, format::kF16);
  EXPECT_EQ(wide.run(false, {}, true), wide.run(false, {}));
  if (!hasLevel(FeatureLevel::Dots))
    GTEST_SKIP() << "the level below has dot products of pairs, this processor has none";
  Case small({1, 2, 2, 20, 30, 16, 40}, 5, format::kBf16);
  EXPECT_EQ(small.run(false, {}, true), small.run(false, {}));
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Case c({1, 4, 2, 8, 8, 8, 8}, 1);
  auto refused = [&](auto change, const char *expected) {
    AttentionParams p = c.p;
    change(p);
    auto params = packParams(p);
    std::vector<OperandExtent> extents;
    std::string why;
    EXPECT_FALSE(describeBuiltinLaunch("attention_f32", params.data(), params.size(),
                                       attentionUnits(c.p), extents, why));
    EXPECT_NE(why.find(expected), std::string::npos) << why;
  };
  refused([](auto &p) { p.kvHeads = 3; }, "multiple of 'kvHeads'");
  refused([](auto &p) { p.kvHeads = 0; }, "multiple of 'kvHeads'");
  refused([](auto &p) { p.qRow = -1; }, "strides");
  refused([](auto &p) { p.outRow = 1; }, "overlap");
  refused([](auto &p) { p.type = 3; }, "types");
  refused([](auto &p) { p.samples = 3; }, "'samples'");
  refused([](auto &p) { p.offset = int64_t{1} << 50; }, "'offset'");
  refused([](auto &p) { p.keys = int64_t{1} << 45; }, "sizes");
  refused([](auto &p) { p.queries += 64; }, "units");
}

} // namespace
} // namespace sluice::test
