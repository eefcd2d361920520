// Formats against their definitions: values listed from exponents and mantissas in
// double, the nearest found by looking at all of them.
#include "kernels/StoredFormats.h"

#include "kernels/Minifloat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

using namespace sluice;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

struct Definition {
  const char *name;
  const Minifloat *format;
  int exponentBits;
  uint32_t largestCode;
};
const Definition kDefinitions[] = {{"e4m3", &minifloat::e4m3, 4, 0x7E},
                                   {"e5m2", &minifloat::e5m2, 5, 0x7B},
                                   {"e2m1", &minifloat::e2m1, 2, 0x7}};

/// Magnitudes by code: 2^(e - bias) (1 + m / 2^M), or 2^(1 - bias) m / 2^M for e = 0.
std::vector<double> magnitudes(const Definition &d) {
  std::vector<double> values;
  int bits = d.format->mantissaBits, bias = (1 << (d.exponentBits - 1)) - 1;
  for (uint32_t code = 0; code <= d.largestCode; ++code) {
    int exponent = static_cast<int>(code >> bits);
    double part = static_cast<double>(code & ((1u << bits) - 1)) / (1 << bits);
    values.push_back(exponent == 0 ? std::ldexp(part, 1 - bias)
                                   : std::ldexp(1 + part, exponent - bias));
  }
  return values;
}

/// Ties go to the even code; what is larger than all counts as the largest.
uint32_t nearestCode(const std::vector<double> &values, double size) {
  size = std::min(size, values.back());
  uint32_t best = 0;
  for (uint32_t code = 1; code < values.size(); ++code) {
    double now = std::fabs(values[code] - size), before = std::fabs(values[best] - size);
    if (now < before || (now == before && code % 2 == 0))
      best = code;
  }
  return best;
}

std::vector<float> interesting(const Definition &d) {
  std::vector<double> values = magnitudes(d);
  std::vector<float> inputs = {0, 0x1p-149f, 0x1p-126f, 1e30f, inf};
  for (size_t i = 0; i < values.size(); ++i) {
    auto here = static_cast<float>(values[i]);
    auto middle = static_cast<float>(
        i + 1 < values.size() ? (values[i] + values[i + 1]) / 2 : values[i] * 1.01);
    for (float x : {here, middle}) {
      inputs.push_back(x);
      inputs.push_back(std::nextafterf(x, 0));
      inputs.push_back(std::nextafterf(x, inf));
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7FFFFFFF);
    if (!std::isnan(x))
      inputs.push_back(x);
    inputs.push_back(
        std::ldexp(static_cast<float>(random() % 100000), -int(random() % 40)));
  }
  return inputs;
}

TEST(StoredFormats, CodesAreTheNearestValueTiesToEven) {
  for (const Definition &d : kDefinitions) {
    std::vector<double> values = magnitudes(d);
    ASSERT_EQ(values.back(), d.format->largest) << d.name;
    for (float x : interesting(d)) {
      uint32_t expected = nearestCode(values, static_cast<double>(x));
      ASSERT_EQ(minifloat::encode(*d.format, x, {}), expected) << d.name << " " << x;
      ASSERT_EQ(minifloat::encode(*d.format, -x, {}), expected | d.format->signBit())
          << d.name << " -" << x;
    }
  }
}

TEST(StoredFormats, AllCodesComeBack) {
  for (const Definition &d : kDefinitions) {
    std::vector<double> values = magnitudes(d);
    for (uint32_t code = 0; code < 2 * d.format->signBit(); ++code) {
      uint32_t size = code & (d.format->signBit() - 1);
      float value = minifloat::decode(*d.format, code);
      if (size < values.size()) {
        EXPECT_EQ(std::fabs(value), values[size]) << d.name << " " << code;
        EXPECT_EQ(std::signbit(value), (code & d.format->signBit()) != 0);
        EXPECT_EQ(minifloat::encode(*d.format, value, {}), code) << d.name;
      } else if (size == d.format->nan) {
        EXPECT_TRUE(std::isnan(value)) << d.name << " " << code;
      }
    }
  }
  EXPECT_EQ(minifloat::encode(minifloat::e4m3, nan, {}), 0x7Fu);
}

TEST(StoredFormats, NoiseChoosesBetweenTheTwoNeighbours) {
  for (const Definition &d : kDefinitions) {
    std::vector<double> values = magnitudes(d);
    for (float x : interesting(d)) {
      double size = std::min<double>(x, values.back());
      auto above = std::lower_bound(values.begin(), values.end(), size);
      auto high = static_cast<uint32_t>(above - values.begin());
      uint32_t low = *above == size ? high : high - 1;
      ASSERT_EQ(minifloat::encode(*d.format, x, {true, 0}), low) << d.name << " " << x;
      uint32_t most = minifloat::encode(*d.format, x, {true, 1 - 0x1p-24f});
      ASSERT_TRUE(most == low || most == high) << d.name << " " << x;
    }
  }
}

TEST(StoredFormats, StochasticRoundingIsUnbiased) {
  constexpr int64_t count = 1 << 16;
  const int64_t shape[] = {count};
  for (float x : {0.3f, 0.0117f, 0.74f}) {
    std::vector<float> values(count, x), out(count);
    values[0] = 1; // sets the scales of whole tensors
    for (StoredFormat format :
         {StoredFormat::bf16, StoredFormat::fp16, StoredFormat::e4m3, StoredFormat::e5m2,
          StoredFormat::nvfp4}) {
      EncodedTensor encoded = encodeTensor(format, shape, values, StochasticKey{1, 2, 3});
      decodeTensor(format, shape, encoded, out);
      auto [low, high] = std::minmax_element(out.begin() + 16, out.end());
      double sum = 0, error = (*high - *low) / 2 / std::sqrt(double(count - 16));
      for (int64_t i = 16; i < count; ++i)
        sum += out[i];
      // In blocks of their own values are their block's largest: few distinct results.
      double exact = format == StoredFormat::nvfp4 ? sum / (count - 16) : x;
      EXPECT_NEAR(sum / (count - 16), exact, 3 * error + 1e-9)
          << traitsOf(format).name << " " << x;
    }
  }
}

TEST(StoredFormats, PowersAreTheLeastThatHoldTheBlock) {
  std::mt19937 random(3);
  for (const Minifloat *format : {&minifloat::e4m3, &minifloat::e2m1}) {
    auto check = [&](float amax) {
      int power = static_cast<int>(
          std::ceil(std::log2(static_cast<double>(amax) / format->largest)));
      ASSERT_EQ(minifloat::powerCode(*format, amax),
                static_cast<uint32_t>(std::max(power, -126) + 127))
          << amax;
    };
    for (int e = -120; e < 120; ++e)
      for (float m :
           {1.0f, 1.5f, 1.75f, std::nextafterf(1.5f, 2), std::nextafterf(1.75f, 2)})
        check(std::ldexp(m, e));
    for (int i = 0; i < 1000; ++i)
      check(std::ldexp(1 + static_cast<float>(random() % 1024) / 1024,
                       static_cast<int>(random() % 200) - 100));
    EXPECT_EQ(minifloat::powerCode(*format, 0), 1u);
    EXPECT_EQ(minifloat::powerCode(*format, inf), minifloat::noPower);
    EXPECT_EQ(minifloat::powerCode(*format, nan), minifloat::noPower);
  }
}

std::vector<StoredFormat> allFormats() {
  std::vector<StoredFormat> formats;
  for (int i = 0; i < storedFormatCount; ++i)
    formats.push_back(static_cast<StoredFormat>(i));
  return formats;
}

std::vector<float> randomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float &value : values)
    value = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 12) - 6);
  return values;
}

TEST(StoredFormats, BlocksOfZerosGiveZeros) {
  const int64_t shape[] = {4, 256};
  for (StoredFormat format : allFormats())
    for (bool hasOther : {false, true}) {
      std::vector<float> values(1024, 0.0f), out(1024, nan);
      if (hasOther)
        values[1000] = 3; // other blocks stay zeros
      decodeTensor(format, shape, encodeTensor(format, shape, values), out);
      for (int i = 0; i < 1024; ++i)
        if (i != 1000)
          ASSERT_EQ(out[i], 0) << traitsOf(format).name << " " << i;
      if (hasOther) {
        EXPECT_NEAR(out[1000], 3, 0.1) << traitsOf(format).name;
      }
    }
}

TEST(StoredFormats, WhatIsNotFiniteStaysSo) {
  const int64_t shape[] = {2, 128};
  for (StoredFormat format : allFormats())
    for (float bad : {inf, -inf, nan}) {
      std::vector<float> values = randomValues(256, 5), out(256);
      values[3] = bad;
      decodeTensor(format, shape, encodeTensor(format, shape, values), out);
      EXPECT_FALSE(std::isfinite(out[3])) << traitsOf(format).name << " " << bad;
    }
}

TEST(StoredFormats, SubnormalsDoNotDivideByZero) {
  const int64_t shape[] = {1, 128};
  for (StoredFormat format : allFormats()) {
    std::vector<float> values(128, 0x1p-140f), out(128);
    decodeTensor(format, shape, encodeTensor(format, shape, values), out);
    for (float value : out)
      ASSERT_TRUE(value >= 0 && value <= 0x1p-126f) << traitsOf(format).name;
  }
}

/// Codes under kept scales are the same again: what makes resuming exact.
TEST(StoredFormats, DecodedValuesHaveTheirCodes) {
  const int64_t shape[] = {128, 256};
  for (StoredFormat format : allFormats())
    for (uint32_t seed = 0; seed < 3; ++seed) {
      std::vector<float> values = randomValues(128 * 256, seed), out(values.size());
      EncodedTensor encoded =
          encodeTensor(format, shape, values, StochasticKey{seed, 1, 2});
      decodeTensor(format, shape, encoded, out);
      EncodedTensor again = encoded;
      encodeUnder(format, shape, out, again);
      EXPECT_EQ(encoded.codes, again.codes) << traitsOf(format).name;
    }
}

TEST(StoredFormats, ErrorsAreWithinHalfAStep) {
  const int64_t shape[] = {128, 256};
  // Of the largest magnitude of the block: half of its format's last step.
  const std::array<double, storedFormatCount> bounds = {
      0, 0x1p-8, 0x1p-10, 0x1p-4, 0x1p-3, 0x1p-4, 0x1p-4, 0x1p-4, 0.25, 0.25};
  std::vector<float> values = randomValues(128 * 256, 9);
  for (StoredFormat format : allFormats()) {
    std::vector<float> out = roundedTo(format, shape, values);
    BlockGrid grid = blocksOf(format, shape);
    std::vector<float> largest(grid.count(), 0.0f);
    for (size_t i = 0; i < values.size(); ++i)
      largest[grid.blockOf(i)] = std::max(largest[grid.blockOf(i)], std::fabs(values[i]));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_LE(std::fabs(out[i] - values[i]),
                bounds[static_cast<int>(format)] * largest[grid.blockOf(i)])
          << traitsOf(format).name << " " << i;
  }
}

TEST(StoredFormats, BytesAreCodesAndScales) {
  const int64_t matrix[] = {256, 256}, ragged[] = {3, 50}, vector[] = {100};
  auto bytes = [](StoredFormat format, std::span<const int64_t> shape) {
    return std::pair(codeBytes(format, shape), scaleBytes(format, shape));
  };
  using Bytes = std::pair<int64_t, int64_t>;
  EXPECT_EQ(bytes(StoredFormat::fp32, matrix), Bytes(262144, 0));
  EXPECT_EQ(bytes(StoredFormat::bf16, matrix), Bytes(131072, 0));
  EXPECT_EQ(bytes(StoredFormat::e4m3, matrix), Bytes(65536, 4));
  EXPECT_EQ(bytes(StoredFormat::e4m3Row, matrix), Bytes(65536, 2048));
  EXPECT_EQ(bytes(StoredFormat::e4m3Tile, matrix), Bytes(65536, 16));
  EXPECT_EQ(bytes(StoredFormat::mxfp8, matrix), Bytes(65536, 2048));
  EXPECT_EQ(bytes(StoredFormat::mxfp4, matrix), Bytes(32768, 2048));
  EXPECT_EQ(bytes(StoredFormat::nvfp4, matrix), Bytes(32768, 4100));
  EXPECT_EQ(bytes(StoredFormat::mxfp4, ragged), Bytes(75, 5));
  EXPECT_EQ(bytes(StoredFormat::nvfp4, vector), Bytes(50, 11));
  EXPECT_TRUE(isWhole(StoredFormat::mxfp4, matrix));
  EXPECT_FALSE(isWhole(StoredFormat::mxfp4, vector));
  EXPECT_TRUE(isWhole(StoredFormat::mxfp8, std::array<int64_t, 1>{10}));
  EXPECT_TRUE(isWhole(StoredFormat::e4m3, vector));
}

TEST(StoredFormats, NamesAreTheSpecs) {
  for (StoredFormat format : allFormats())
    EXPECT_EQ(storedFormat(traitsOf(format).name), format);
  EXPECT_EQ(storedFormat("fp8"), StoredFormat::e4m3);
  EXPECT_EQ(storedFormat("int3"), std::nullopt);
  EXPECT_NE(storedFormatNames().find("mxfp8, mxfp4, nvfp4"), std::string::npos);
}

/// Values over 60 binary orders, rounded to nearest and by all kinds of noise.
TEST(StoredFormats, WhatIsRaisedHasNoCodeOfZero) {
  const std::vector<int64_t> shape = {128, 256};
  std::mt19937 random(5);
  std::vector<float> values(128 * 256);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000,
                           -static_cast<int>(random() % 60));
  // A block that is small as a whole; its first lies just above a power of two.
  for (size_t i = 0; i < 128; ++i)
    values[i] = std::ldexp(1.0f, -40) * (i == 0 ? 7.0000005f : 1.0f);
  for (StoredFormat format : allFormats()) {
    if (traitsOf(format).scale == ScaleKind::none)
      continue;
    SCOPED_TRACE(traitsOf(format).name);
    std::vector<float> raised = values, back(values.size());
    raiseAboveZero(format, shape, raised);
    EncodedTensor encoded = scalesOf(format, shape, raised);
    for (float noise : {-1.0f, 0.0f, 0.5f, 1 - 0x1p-24f}) {
      std::vector<float> all(noise < 0 ? 0 : values.size(), noise);
      encodeUnder(format, shape, raised, encoded, all);
      decodeTensor(format, shape, encoded, back);
      EXPECT_GT(*std::min_element(back.begin(), back.end()), 0) << noise;
    }
    // At most two steps, or for nvfp4 the least scale of a block.
    FloorShares shares = floorShares(format);
    float most = *std::max_element(values.begin(), values.end());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(raised[i] == values[i] ||
                  raised[i] <= most * std::max(shares.ofBlock, shares.ofTensor))
          << i;
    std::vector<float> zeros(values.size(), 0.0f);
    raiseAboveZero(format, shape, zeros);
    EXPECT_EQ(*std::max_element(zeros.begin(), zeros.end()), 0);
  }
}

} // namespace
