#include "runtime/StoredForm.h"

#include "runtime/DynamicMap.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace sluice::test {

constexpr StoredForm f32Form = {DType::f32, Completion::nothing},
                     splitForm = {DType::bf16, Completion::low},
                     bf16Master = {DType::bf16, Completion::master},
                     f16Master = {DType::f16, Completion::master},
                     bf16Alone = {DType::bf16, Completion::nothing},
                     f16Alone = {DType::f16, Completion::nothing},
                     signedCodes = {DType::i8, Completion::scale, 40, false},
                     positiveCodes = {DType::i8, Completion::scale, 250, true},
                     signedRange = {DType::i8, Completion::range, 40, false},
                     positiveRange = {DType::i8, Completion::range, 250, true};

namespace {

/// Values with the room for them one byte off any alignment.
struct Stored {
  StoredForm form;
  uint64_t count;
  std::vector<uint8_t> data, completion;

  Stored(StoredForm form, uint64_t count)
      : form(form), count(count), data(1 + count * dtypeSize(form.dtype)),
        completion(1 + completionBytes(form, count)) {}
  Stored(StoredForm form, const std::vector<float> &values)
      : Stored(form, values.size()) {
    rounded = writeExact(target(), 0, values);
  }
  StoredTensor<uint8_t> target() {
    return {form, count, data.data() + 1, completion.data() + 1};
  }
  StoredTensor<const uint8_t> source() const {
    return {form, count, data.data() + 1, completion.data() + 1};
  }
  std::vector<float> values() const {
    std::vector<float> result(count);
    readExact(source(), 0, result);
    return result;
  }
  uint16_t word(size_t i) const {
    return static_cast<uint16_t>(data[1 + 2 * i] | data[2 + 2 * i] << 8);
  }
  uint64_t rounded = 0;
};

float of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// Every kind of pattern: both signs of zeros, denormals, ties of the upper half, the
/// largest value, infinities, NaNs, and random ones.
std::vector<float> manyValues() {
  std::vector<float> values;
  for (uint32_t high :
       {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x7f7fu, 0x7f80u, 0x7fffu})
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      for (uint32_t sign : {0u, 0x80000000u})
        values.push_back(of(sign | high << 16 | low));
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i)
    values.push_back(of(static_cast<uint32_t>(random())));
  return values;
}

std::vector<uint32_t> bitsOf(const std::vector<float> &values) {
  std::vector<uint32_t> bits;
  for (float value : values)
    bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

} // namespace

TEST(StoredForm, FormsWithAMasterKeepEveryBit) {
  std::vector<float> values = manyValues();
  for (StoredForm form : {f32Form, splitForm, bf16Master, f16Master}) {
    Stored stored(form, values);
    EXPECT_EQ(stored.rounded, 0u);
    EXPECT_TRUE(form.isExact());
    EXPECT_EQ(bitsOf(stored.values()), bitsOf(values)) << formText(form);
  }
}

TEST(StoredForm, ConvertsBetweenExactFormsBitForBit) {
  std::vector<float> values = manyValues();
  for (StoredForm from : {f32Form, splitForm, bf16Master, f16Master})
    for (StoredForm to : {f32Form, splitForm, bf16Master, f16Master}) {
      Stored before(from, values), after(to, values.size()), direct(to, values);
      EXPECT_EQ(convertStored(before.source(), after.target()), 0u);
      EXPECT_EQ(after.data, direct.data) << formText(from) << " to " << formText(to);
      EXPECT_EQ(after.completion, direct.completion);
    }
}

TEST(StoredForm, SplitRoundsTheUpperHalfUpAtTies) {
  Stored stored(splitForm, {of(0x3f808000), of(0x3f807fff), of(0xbf818000)});
  EXPECT_EQ(stored.word(0), 0x3f81);
  EXPECT_EQ(stored.word(1), 0x3f80);
  EXPECT_EQ(stored.word(2), 0xbf82);
  EXPECT_EQ(stored.completion[1] | stored.completion[2] << 8, 0x8000);
}

TEST(StoredForm, OthersRoundToNearestEven) {
  std::vector<float> values = {of(0x3f808000), of(0x3f818000), of(0x3f808001),
                               of(0x3f800000), of(0x7f7fffff)};
  for (StoredForm form : {bf16Alone, bf16Master}) {
    Stored stored(form, values);
    EXPECT_EQ(stored.word(0), 0x3f80);
    EXPECT_EQ(stored.word(1), 0x3f82);
    EXPECT_EQ(stored.word(2), 0x3f81);
    EXPECT_EQ(stored.word(3), 0x3f80);
    EXPECT_EQ(stored.word(4), 0x7f80);
    EXPECT_EQ(stored.rounded, form.isExact() ? 0u : 4u);
  }
  Stored half(f16Alone, {1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 0x1p-25f, 65520.0f});
  EXPECT_EQ(half.word(0), 0x3c00);
  EXPECT_EQ(half.word(1), 0x3c02);
  EXPECT_EQ(half.word(2), 0x0000);
  EXPECT_EQ(half.word(3), 0x7c00);
  EXPECT_EQ(half.rounded, 4u);
}

TEST(StoredForm, ANaNStaysOneAndIsNotCountedAsRounded) {
  for (StoredForm form : {bf16Alone, f16Alone}) {
    Stored stored(form, {of(0x7f800001), of(0xffffffff)});
    EXPECT_TRUE(std::isnan(stored.values()[0]) && std::isnan(stored.values()[1]));
    EXPECT_EQ(stored.rounded, 0u);
  }
}

TEST(StoredForm, EveryNarrowValueSurvivesItsF32) {
  for (StoredForm form : {bf16Alone, f16Alone}) {
    Stored all(form, uint64_t(1) << 16), wide(f32Form, all.count), back(form, all.count);
    for (uint32_t i = 0; i < 1 << 16; ++i) {
      all.data[1 + 2 * i] = static_cast<uint8_t>(i);
      all.data[2 + 2 * i] = static_cast<uint8_t>(i >> 8);
    }
    EXPECT_EQ(convertStored(all.source(), wide.target()), 0u);
    EXPECT_EQ(convertStored(wide.source(), back.target()), 0u);
    std::vector<float> values = all.values();
    for (uint32_t i = 0; i < 1 << 16; ++i)
      if (!std::isnan(values[i]))
        ASSERT_EQ(back.word(i), i) << formText(form);
  }
}

TEST(StoredForm, ReadsAndWritesAPart) {
  std::vector<float> values = {1, 2, 3, 4, 5};
  for (StoredForm form : {f32Form, splitForm, bf16Master, f16Alone}) {
    Stored stored(form, values);
    std::vector<float> part(2), changed = {7, 8};
    readExact(stored.source(), 3, part);
    EXPECT_EQ(part, (std::vector<float>{4, 5}));
    writeExact(stored.target(), 1, changed);
    EXPECT_EQ(stored.values(), (std::vector<float>{1, 7, 8, 4, 5}));
  }
}

TEST(DynamicMap, EveryCodeIsThatOfItsValue) {
  for (bool isPositive : {false, true}) {
    DynamicMap map(isPositive);
    std::set<float> values;
    for (int code = -128; code < 128; ++code) {
      float value = map.decode(static_cast<int8_t>(code));
      EXPECT_EQ(map.encode(value), code) << "positive " << isPositive;
      EXPECT_TRUE(value >= (isPositive ? 0.0f : -1.0f) && value <= 1.0f);
      values.insert(value);
    }
    EXPECT_EQ(values.size(), 256u);
    EXPECT_EQ(map.decode(isPositive ? -1 : -128), 1.0f);
    EXPECT_EQ(map.decode(0), 0.0f);
  }
  // Middles of the parts: of 64 (128) in the decade up to 1, of 1 (2) in that up to 1e-6.
  EXPECT_FLOAT_EQ(DynamicMap(false).decode(127), 0.1f + 0.9f * 63.5f / 64);
  EXPECT_FLOAT_EQ(DynamicMap(true).decode(-2), 0.1f + 0.9f * 127.5f / 128);
  EXPECT_FLOAT_EQ(DynamicMap(false).decode(1), 5.5e-7f);
  EXPECT_FLOAT_EQ(DynamicMap(true).decode(1), 3.25e-7f);
  EXPECT_EQ(DynamicMap(false).encode(-1), -127);
  EXPECT_EQ(DynamicMap(false).encode(std::nanf("")), 0);
}

TEST(DynamicMap, TakesTheNearestValue) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> decade(-8, 0);
  for (bool isPositive : {false, true}) {
    DynamicMap map(isPositive);
    for (int i = 0; i < 2000; ++i) {
      float x = std::pow(10.0f, decade(random));
      float error = std::fabs(map.decode(map.encode(x)) - x);
      for (int code = -128; code < 128; ++code)
        ASSERT_LE(error, std::fabs(map.decode(static_cast<int8_t>(code)) - x) + 1e-9f);
    }
  }
}

TEST(StoredForm, BlocksHaveScalesOfTheirOwn) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> unit(0, 1);
  for (StoredForm form : {signedCodes, positiveCodes, signedRange, positiveRange}) {
    std::vector<float> values;
    for (uint64_t i = 0; i < 20 * form.block; ++i)
      values.push_back(
          std::ldexp(unit(random), static_cast<int>(i / form.block) * 7 - 70) *
          (form.isPositive || random() % 2 ? 1 : -1));
    Stored wide(f32Form, values), codes(form, values.size()), again(form, values.size());
    EXPECT_GT(convertStored(wide.source(), codes.target()), 0u); // in parts of the blocks
    Stored direct(form, values);
    EXPECT_EQ(codes.data, direct.data);
    EXPECT_EQ(codes.completion, direct.completion);
    std::vector<float> read = codes.values();
    for (uint64_t block = 0; block < 20; ++block) {
      float largest = 0;
      for (uint64_t i = block * form.block; i < (block + 1) * form.block; ++i)
        largest = std::max(largest, std::fabs(values[i]));
      for (uint64_t i = block * form.block; i < (block + 1) * form.block; ++i)
        ASSERT_LE(std::fabs(read[i] - values[i]),
                  largest * (form.completion == Completion::range ? 0.07f : 0.011f));
    }
    // Codes of decoded values are themselves, unless the largest was negative: -1 has
    // none.
    Stored decoded(f32Form, read);
    convertStored(decoded.source(), again.target());
    if (form.isPositive) {
      EXPECT_EQ(again.data, codes.data);
    }
  }
}

TEST(StoredForm, BlocksOfZerosAndOfTheSmallestValuesAreZeros) {
  std::vector<float> values(120, 0.0f);
  values[45] = of(0x00000007);
  for (StoredForm form : {signedCodes, signedRange}) {
    Stored codes(form, values);
    EXPECT_EQ(codes.values(), std::vector<float>(120, 0.0f));
    EXPECT_EQ(codes.rounded, 1u);
  }
}

TEST(StoredForm, OfNoElementsTouchesNothing) {
  for (StoredForm form : {f32Form, splitForm})
    EXPECT_EQ(
        convertStored({form, 0, nullptr, nullptr}, {bf16Master, 0, nullptr, nullptr}),
        0u);
}

} // namespace sluice::test
