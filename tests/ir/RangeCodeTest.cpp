// 8-bit floating point with an expanded range: the reference against formulas in double,
// over all codes and powers, then the vector code against the reference.
#include "tests/ir/VectorJit.h"

#include <bit>
#include <cmath>

namespace sluice::graph {
namespace {

constexpr int kPowers = 6;
const double kExponents[kPowers] = {0.25, 0.5, 1, 2, 4, 8};

/// A scale near `size` that carries power n.
double scaleWith(double size, int n) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(size));
  return std::bit_cast<float>((bits & ~7u) | static_cast<uint32_t>(n));
}

/// Of e4m3 by its definition.
double e4m3(int code) {
  int exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? mantissa * 0x1p-9
                       : (8 + mantissa) / 8.0 * std::pow(2.0, exponent - 7);
}

/// All codes but those of NaN and -0, with each power.
struct AllCodes {
  HostTensor codes, scales;
  AllCodes() {
    std::vector<int64_t> c;
    std::vector<double> s;
    for (int n = 0; n < kPowers; ++n)
      for (int code = -127; code < 127; ++code)
        if (code != -1) { // NaN, as 127
          c.push_back(code);
          s.push_back(scaleWith(3.7e-3, n));
        }
    while (c.size() % 16)
      c.push_back(0), s.push_back(scaleWith(1, 0));
    int64_t count = c.size();
    codes = integer({count}, c, 8), scales = real({count}, s);
  }
};

std::vector<double> decoded(const HostTensor &codes, const HostTensor &scales) {
  return run(binary<RangeDecodeOp>(), {codes, scales}, Precision::Single)[0].reals;
}
Build encode(bool positive) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<RangeEncodeOp>(b.getUnknownLoc(), x[0], x[1], positive);
  };
}
Build scaleOf(bool positive) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<RangeScaleOp>(b.getUnknownLoc(), x[0], x[1], positive);
  };
}

TEST(RangeCode, AllCodesStandForTheFormula) {
  AllCodes all;
  std::vector<double> got = decoded(all.codes, all.scales);
  for (size_t i = 0; i < got.size(); ++i) {
    int64_t code = all.codes.integers[i];
    double scale = all.scales.reals[i];
    int n = std::bit_cast<uint32_t>(static_cast<float>(scale)) & 7;
    double size = std::pow(e4m3(code & 0x7F) / 448, 1 / kExponents[n]) * scale;
    ASSERT_NEAR(got[i], code < 0 ? -size : size, size * 1e-6) << code << ", power " << n;
  }
}

TEST(RangeCode, CodesOfTheirValuesAreThemselves) {
  AllCodes all;
  HostTensor values = real(all.codes.shape, decoded(all.codes, all.scales));
  HostTensor again = run(encode(false), {values, all.scales}, Precision::Single)[0];
  EXPECT_EQ(again.integers, all.codes.integers);
}

TEST(RangeCode, CodesAreNearest) {
  for (int n = 0; n < kPowers; ++n) {
    std::vector<double> ratios, scales;
    double scale = scaleWith(1, n);
    for (int i = 0; i < 4096; ++i) {
      ratios.push_back(static_cast<float>(std::pow(10.0, -6.0 * i / 4096)));
      scales.push_back(scale);
    }
    HostTensor x = real({4096}, ratios), s = real({4096}, scales);
    HostTensor codes = run(encode(true), {x, s}, Precision::Single)[0];
    for (int i = 0; i < 4096; ++i) {
      double wanted = std::min(448.0, 448 * std::pow(ratios[i] / scale, kExponents[n]));
      int code = codes.integers[i];
      double error = std::fabs(e4m3(code) - wanted);
      for (int other : {code - 1, code + 1})
        if (other > 0 && other < 127)
          ASSERT_LE(error, std::fabs(e4m3(other) - wanted) * (1 + 1e-5)) << ratios[i];
      ASSERT_GT(code, 0); // nothing positive is lost
    }
  }
}

/// The power is the largest that still tells the least value from 0.
TEST(RangeCode, PowersFollowTheRange) {
  std::vector<double> largest, least;
  for (double ratio : {1.0, 0.3, 0.22, 0.2, 0.05, 0.04, 0.0022, 0.002, 1e-5, 4e-6, 1e-10,
                       1e-11, 1e-20, 0.9, 0.5, 1e-3})
    largest.push_back(5.5e-4f), least.push_back(static_cast<float>(ratio * 5.5e-4));
  for (bool positive : {false, true}) {
    HostTensor scales = run(scaleOf(positive), {real({16}, largest), real({16}, least)},
                            Precision::Single)[0];
    for (size_t i = 0; i < 16; ++i) {
      int expected = positive ? 0 : 2;
      for (int n = expected; n < kPowers; ++n)
        if (std::pow(least[i] / largest[i], kExponents[n]) >= 0x1p-9 / 448)
          expected = n;
      uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(scales.reals[i]));
      EXPECT_EQ(int(bits & 7), expected) << least[i] / largest[i];
      EXPECT_NEAR(scales.reals[i], largest[i], largest[i] * 1e-6);
    }
  }
}

TEST(RangeCode, ZerosAreZerosAndNothingElseIsNaN) {
  std::vector<double> x = {0, -0.0, 0x1p-140, -0x1p-130, 0x1.fffffep127, 1, -1, 1e-30};
  x.resize(16, 0.0);
  HostTensor values = real({16}, x);
  for (double largest : {0.0, 0x1p-127, 0x1p-126, 1.0, 0x1.fffffep127}) {
    HostTensor scales =
        run(scaleOf(false),
            {real({16}, std::vector<double>(16, largest)),
             real({16}, std::vector<double>(16, largest > 0 ? largest : 0x1.fffffep127))},
            Precision::Single)[0];
    HostTensor codes = run(encode(false), {values, scales}, Precision::Single)[0];
    for (double y : decoded(codes, scales)) {
      EXPECT_FALSE(std::isnan(y));
      if (largest < 0x1p-126)
        EXPECT_EQ(y, 0);
    }
    EXPECT_EQ(codes.integers[0], 0);
    EXPECT_EQ(codes.integers[1], 0);
  }
  double nan = std::nan("");
  HostTensor scale =
      run(scaleOf(false), {real({1}, {nan}), real({1}, {1})}, Precision::Single)[0];
  EXPECT_TRUE(std::isnan(decoded(integer({1}, {0}, 8), scale)[0])); // as of f32 moments
}

TEST(RangeCode, AsInterpreted) {
  AllCodes all;
  HostTensor x = uniform({4096}, -1, 1, 11), least = uniform({4096}, 0, 1, 12);
  std::vector<double> scales;
  for (size_t i = 0; i < 4096; ++i) {
    x.reals[i] = static_cast<float>(x.reals[i] * std::pow(10.0, -double(i % 12)));
    least.reals[i] = static_cast<float>(least.reals[i] * std::pow(10.0, -double(i % 25)));
    scales.push_back(i % 100 ? scaleWith(std::pow(10.0, -double(i % 5)), i % kPowers)
                             : 0);
  }
  HostTensor s = real({4096}, scales), sizes = x;
  for (double &value : sizes.reals)
    value = std::fabs(value);
  for (const char *cpu : {"", "haswell"}) {
    expectAsInterpreted(binary<RangeDecodeOp>(), {all.codes, all.scales}, "range_decode",
                        cpu);
    for (bool positive : {false, true}) {
      expectAsInterpreted(encode(positive), {positive ? sizes : x, s}, "range_encode",
                          cpu);
      expectAsInterpreted(scaleOf(positive), {sizes, least}, "range_scale", cpu);
    }
  }
}

} // namespace
} // namespace sluice::graph
