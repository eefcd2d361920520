#include "runtime/data/Convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace sluice;

namespace {

template <class T> ElementSource sourceOf(const std::vector<T> &values, DType dtype) {
  ElementSource source;
  source.data = reinterpret_cast<const uint8_t *>(values.data());
  source.dtype = dtype;
  return source;
}

TEST(Convert, BytesToScaledFloats) {
  std::vector<uint8_t> values = {0, 51, 255};
  float out[3];
  EXPECT_EQ(
      convertElements(sourceOf(values, DType::u8), 3, {1 / 255.0, -0.5}, DType::f32, out),
      -1);
  EXPECT_FLOAT_EQ(out[0], -0.5f);
  EXPECT_FLOAT_EQ(out[1], 0.2f - 0.5f);
  EXPECT_FLOAT_EQ(out[2], 0.5f);
}

TEST(Convert, SixtyFourBitIntegersKeepAllBits) {
  std::vector<int64_t> values = {INT64_MAX, INT64_MIN, (int64_t(1) << 53) + 1};
  int64_t out[3];
  EXPECT_EQ(convertElements(sourceOf(values, DType::i64), 3, {}, DType::i64, out), -1);
  EXPECT_EQ(std::vector<int64_t>(out, out + 3), values);
}

TEST(Convert, SwappedAndStrided) {
  std::vector<uint8_t> bytes = {0x01, 0x02, 0xff, 0xff, 0x03, 0x04};
  ElementSource source = sourceOf(bytes, DType::u16);
  source.swapped = true;
  source.step = 2;
  int32_t out[2];
  EXPECT_EQ(convertElements(source, 2, {}, DType::i32, out), -1);
  EXPECT_EQ(out[0], 0x0102);
  EXPECT_EQ(out[1], 0x0304);
}

TEST(Convert, TellsTheFirstElementThatDoesNotFit) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinite = std::numeric_limits<float>::infinity();
  double outDouble[3];
  int8_t outByte[3];
  float outFloat[3];
  std::vector<float> floats = {1, nan, infinite};
  EXPECT_EQ(convertElements(sourceOf(floats, DType::f32), 3, {}, DType::f64, outDouble),
            1);
  floats = {1, 2, infinite};
  EXPECT_EQ(convertElements(sourceOf(floats, DType::f32), 3, {}, DType::f32, outFloat),
            2);
  floats = {1, 2, 0.5};
  EXPECT_EQ(convertElements(sourceOf(floats, DType::f32), 3, {}, DType::i8, outByte), 2);
  std::vector<int32_t> ints = {-128, 127, 128};
  EXPECT_EQ(convertElements(sourceOf(ints, DType::i32), 3, {}, DType::i8, outByte), 2);
  std::vector<double> doubles = {1, 1e300, 1};
  EXPECT_EQ(convertElements(sourceOf(doubles, DType::f64), 3, {}, DType::f32, outFloat),
            1);
  std::vector<uint8_t> flags = {0, 1, 2};
  EXPECT_EQ(convertElements(sourceOf(flags, DType::u8), 3, {1, 0.0}, DType::i1, outByte),
            2);
}

TEST(Convert, LimitsOfSixtyFourBitTargets) {
  std::vector<double> values = {9223372036854775808.0}; // 2^63
  int64_t out;
  uint64_t outUnsigned;
  EXPECT_EQ(convertElements(sourceOf(values, DType::f64), 1, {}, DType::i64, &out), 0);
  EXPECT_EQ(
      convertElements(sourceOf(values, DType::f64), 1, {}, DType::u64, &outUnsigned), -1);
  EXPECT_EQ(outUnsigned, uint64_t(1) << 63);
}

TEST(Convert, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    std::vector<uint16_t> half = {uint16_t(bits)};
    float value;
    int64_t bad = convertElements(sourceOf(half, DType::f16), 1, {}, DType::f32, &value);
    bool finite = (bits & 0x7c00) != 0x7c00;
    ASSERT_EQ(bad, finite ? -1 : 0) << bits;
    if (!finite)
      continue;
    std::vector<float> wide = {value};
    uint16_t back;
    ASSERT_EQ(convertElements(sourceOf(wide, DType::f32), 1, {}, DType::f16, &back), -1);
    ASSERT_EQ(back, bits);
  }
}

TEST(Convert, RoundsToTheNearestHalfTiesToEven) {
  std::vector<double> values = {1 + 1.0 / 2048, 1 + 3.0 / 2048, 65519, 1e-8, 6e-8};
  uint16_t out[5];
  ASSERT_EQ(convertElements(sourceOf(values, DType::f64), 5, {}, DType::f16, out), -1);
  EXPECT_EQ(out[0], 0x3c00);
  EXPECT_EQ(out[1], 0x3c02);
  EXPECT_EQ(out[2], 0x7bff);
  EXPECT_EQ(out[3], 0);
  EXPECT_EQ(out[4], 1);
  values = {65520};
  EXPECT_EQ(convertElements(sourceOf(values, DType::f64), 1, {}, DType::f16, out), 0);
}

TEST(Convert, RoundsToTheNearestBfloat) {
  std::mt19937 rng(4);
  for (int i = 0; i < 20000; ++i) {
    float value = std::bit_cast<float>(uint32_t(rng()));
    if (!std::isfinite(value) || std::abs(value) > 3e38f)
      continue;
    std::vector<float> in = {value};
    uint16_t out;
    ASSERT_EQ(convertElements(sourceOf(in, DType::f32), 1, {}, DType::bf16, &out), -1);
    // The usual trick on the bits.
    uint32_t bits = std::bit_cast<uint32_t>(value);
    ASSERT_EQ(out, uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)) << value;
  }
}

} // namespace
