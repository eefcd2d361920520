// State in fewer bytes: the reference against formulas of its own, then the vector code
// against the reference.
#include "tests/ir/VectorJit.h"

#include <bit>
#include <cmath>

namespace sluice::graph {
namespace {

double realOf(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bitsOf(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }

HostTensor bf16(Shape shape, std::vector<double> values) {
  HostTensor tensor = real(std::move(shape), std::move(values));
  tensor.elementType = mlir::BFloat16Type::get(&context());
  return tensor;
}

/// Every exponent and sign with ties of the lower half, and random words; no NaN.
HostTensor finiteWords() {
  std::vector<double> values;
  for (uint32_t high = 0; high < 0x10000; high += 0x20)
    for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      if (((high << 16) & 0x7F800000) != 0x7F800000)
        values.push_back(realOf(high << 16 | low));
  for (uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7F7FFFFFu, 0xFF7FFFFFu})
    values.push_back(realOf(bits));
  std::mt19937 generator(7);
  while (values.size() < 20000 || values.size() % 16)
    if (uint32_t bits = generator(); (bits & 0x7F800000) != 0x7F800000)
      values.push_back(realOf(bits));
  const int64_t count = values.size();
  return real({count}, std::move(values));
}

TEST(Narrow, HalvesMakeTheFloat) {
  HostTensor x = finiteWords();
  HostTensor high = run(unary<SplitHighOp>(), {x}, Precision::Single)[0];
  HostTensor low = run(unary<SplitLowOp>(), {x}, Precision::Single)[0];
  HostTensor joined = run(binary<JoinSplitOp>(), {high, low}, Precision::Single)[0];
  for (size_t i = 0; i < x.reals.size(); ++i) {
    ASSERT_EQ(bitsOf(joined.reals[i]), bitsOf(x.reals[i]));
    // The half is a bf16 no further away than half of its last place.
    ASSERT_EQ(bitsOf(high.reals[i]) & 0xFFFF, 0u);
    ASSERT_EQ(int64_t(bitsOf(x.reals[i])) - int64_t(bitsOf(high.reals[i])),
              low.integers[i]);
    ASSERT_TRUE(low.integers[i] >= -0x8000 && low.integers[i] < 0x8000);
  }
}

TEST(Narrow, HalvesAsInterpreted) {
  HostTensor x = finiteWords();
  for (const char *cpu : {"", "haswell"}) {
    expectAsInterpreted(unary<SplitHighOp>(), {x}, "split_high", cpu);
    expectAsInterpreted(unary<SplitLowOp>(), {x}, "split_low", cpu);
    HostTensor high = run(unary<SplitHighOp>(), {x}, Precision::Single)[0];
    HostTensor low = run(unary<SplitLowOp>(), {x}, Precision::Single)[0];
    expectAsInterpreted(binary<JoinSplitOp>(), {high, low}, "join_split", cpu);
  }
}

// Over all 2^16 random numbers the mean of the results is x itself, exactly.
TEST(Narrow, StochasticRoundingHasNoBias) {
  std::vector<double> noise;
  for (int i = 0; i < 65536; ++i)
    noise.push_back(i * 0x1p-16);
  for (double x : {1.0, -1.00390625, 0.7123456, -3.1e-7, 6.02e23, 0x1.fffffep+0}) {
    float single = static_cast<float>(x);
    std::vector<double> same(65536, single);
    HostTensor y = run(binary<RoundStochasticOp>(),
                       {real({65536}, same), real({65536}, noise)}, Precision::Single)[0];
    double sum = 0;
    for (double value : y.reals) {
      EXPECT_EQ(bitsOf(value) & 0xFFFF, 0u);
      EXPECT_LE(std::fabs(value - single), std::fabs(single) * 0x1p-7);
      sum += value / 65536;
    }
    EXPECT_NEAR(sum, single, std::fabs(single) * 1e-12) << x;
  }
}

TEST(Narrow, StochasticRoundingAsInterpreted) {
  HostTensor x = finiteWords();
  HostTensor random = uniform(x.shape, 0, 1, 3);
  for (double &value : random.reals) // steps of 2^-24, as drawn
    value = std::floor(value * 0x1p24) * 0x1p-24;
  for (const char *cpu : {"", "haswell"})
    expectAsInterpreted(binary<RoundStochasticOp>(), {x, random}, "round_stochastic",
                        cpu);
  HostTensor special = real({1}, {std::nan("")});
  EXPECT_TRUE(std::isnan(
      run(binary<RoundStochasticOp>(), {special, real({1}, {0.99})}, Precision::Single)[0]
          .reals[0]));
}

/// The map as Dettmers et al. build it, in double precision: 0, 1, and the middles of
/// equal parts of [0.1, 1] times powers of ten.
std::vector<double> mapValues(bool positive) {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    int parts = 1 << (decade + (positive ? 1 : 0));
    for (int i = 0; i < parts; ++i)
      values.push_back((0.1 + 0.9 * (i + 0.5) / parts) * std::pow(10.0, decade - 6));
  }
  std::sort(values.begin(), values.end());
  return values;
}

Build encode(bool positive) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<DynamicEncodeOp>(b.getUnknownLoc(), x[0], positive);
  };
}
Build decode(bool positive) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<DynamicDecodeOp>(b.getUnknownLoc(), x[0], positive);
  };
}

HostTensor allCodes() {
  std::vector<int64_t> codes;
  for (int64_t code = -128; code < 128; ++code)
    codes.push_back(code);
  return integer({256}, codes, 8);
}

TEST(Narrow, CodesStandForTheMap) {
  for (bool positive : {false, true}) {
    std::vector<double> expected = mapValues(positive);
    if (!positive) // all but 1 have a negative
      for (size_t i = 1, e = expected.size() - 1; i < e; ++i)
        expected.push_back(-expected[i]);
    std::sort(expected.begin(), expected.end());
    std::vector<double> got =
        run(decode(positive), {allCodes()}, Precision::Single)[0].reals;
    std::sort(got.begin(), got.end());
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], std::fabs(expected[i]) * 3e-7);
  }
}

HostTensor unitValues(bool positive) {
  HostTensor x = uniform({4096}, positive ? 0 : -1, 1, 11);
  for (size_t i = 0; i < x.reals.size(); i += 2) // small ones too
    x.reals[i] =
        static_cast<float>(x.reals[i] * std::pow(10.0, -static_cast<double>(i % 9)));
  for (double v : {0.0, 1.0, positive ? 0.5 : -1.0, 1e-7, 1e-9, 0.1, 0.01, 0.999, 5.5e-7,
                   0.9965, 0.99, 1e-30, 0.55, 0.3, 0.2, 0.7})
    x.reals.push_back(static_cast<float>(v));
  x.shape = {static_cast<int64_t>(x.reals.size())};
  return x;
}

TEST(Narrow, CodesAreNearest) {
  for (bool positive : {false, true}) {
    HostTensor x = unitValues(positive);
    HostTensor codes = run(encode(positive), {x}, Precision::Single)[0];
    HostTensor y = run(decode(positive), {codes}, Precision::Single)[0];
    HostTensor all = run(decode(positive), {allCodes()}, Precision::Single)[0];
    for (size_t i = 0; i < x.reals.size(); ++i) {
      double least = 2;
      for (double value : all.reals)
        least = std::min(least, std::fabs(value - x.reals[i]));
      EXPECT_LE(std::fabs(y.reals[i] - x.reals[i]), least + 1e-8) << x.reals[i];
    }
  }
}

TEST(Narrow, CodesAsInterpreted) {
  for (bool positive : {false, true})
    for (const char *cpu : {"", "haswell"}) {
      expectAsInterpreted(encode(positive), {unitValues(positive)}, "dynamic_encode",
                          cpu);
      expectAsInterpreted(decode(positive), {allCodes()}, "dynamic_decode", cpu);
    }
}

TEST(Narrow, ProductsSumInSingleAndRoundOnce) {
  auto product = [](mlir::Type roundTo) {
    return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
      auto type = roundTo ? mlir::TypeAttr::get(roundTo) : mlir::TypeAttr();
      return b.create<ContractOp>(b.getUnknownLoc(), x[0], x[1],
                                  llvm::ArrayRef<int64_t>(), llvm::ArrayRef<int64_t>(),
                                  llvm::ArrayRef<int64_t>{1}, llvm::ArrayRef<int64_t>{0},
                                  type);
    };
  };
  HostTensor a = bf16({1, 3}, {1, 0x1p-8, 0x1p-9}), b = bf16({3, 1}, {1, 1, 1});
  HostTensor wide = run(product({}), {a, b}, Precision::Single)[0];
  EXPECT_TRUE(wide.elementType.isF32());
  EXPECT_EQ(wide.reals[0], 1 + 0x1p-8 + 0x1p-9);
  HostTensor narrow =
      run(product(mlir::BFloat16Type::get(&context())), {a, b}, Precision::Single)[0];
  EXPECT_TRUE(narrow.elementType.isBF16());
  EXPECT_EQ(narrow.reals[0], 1 + 0x1p-7); // not 1, as after a rounding of each sum
}

} // namespace
} // namespace sluice::graph
