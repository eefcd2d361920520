#include "TestPlan.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace sluice::test {

/// One input of five samples of two elements.
struct OneInput {
  OneInput(DType type) {
    plan.plan.batch = 5;
    fbs::ProgramT &infer = plan.program("infer");
    plan.input(infer, "labels", type, {5, 2});
    port = infer.inputs[0].get();
  }

  template <class T>
  Status copy(const std::vector<T> &values, int64_t firstSample = 100) {
    PlanPtr read = plan.read();
    const fbs::Port *checked = read->raw().programs()->Get(0)->inputs()->Get(0);
    target.assign(checked->size(), 0xee);
    BatchPart part{static_cast<int64_t>(values.size() / 2), 5, firstSample, {}};
    return copyInput(*checked, values.data(), part, options, target.data());
  }

  TestPlan plan;
  fbs::PortT *port;
  InputCheckOptions options;
  std::vector<uint8_t> target;
};

TEST(Input, ShortBatchIsFilledInTurn) {
  OneInput input(DType::i16);
  ASSERT_TRUE(input.copy<int16_t>({1, 2, 3, 4}).ok());
  int16_t expected[10] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
  EXPECT_EQ(std::memcmp(input.target.data(), expected, sizeof expected), 0);
}

TEST(Input, LabelOutOfRangeNamesSampleAndValue) {
  OneInput input(DType::i64);
  input.port->bounded = true;
  input.port->lower = 0;
  input.port->upper = 9;
  input.port->has_ignored = true;
  input.port->ignored = -100;
  EXPECT_TRUE(input.copy<int64_t>({0, 9, -100, 5}).ok());
  Status status = input.copy<int64_t>({0, 9, -100, 10});
  EXPECT_EQ(status.code, StatusCode::damaged);
  EXPECT_EQ(status.message,
            "input 'labels', sample 1 of the batch (101 of the data), element 1: "
            "value is 10, expected 0 to 9 or -100");
  EXPECT_FALSE(input.copy<int64_t>({-1, 0}).ok());
}

TEST(Input, BoundsHoldForEveryIntegerType) {
  auto check = [](DType type, auto bad, auto good) {
    OneInput input(type);
    input.port->bounded = true;
    input.port->lower = 3;
    input.port->upper = 100;
    using T = decltype(bad);
    EXPECT_TRUE(input.copy<T>({good, good}).ok()) << dtypeName(type);
    EXPECT_FALSE(input.copy<T>({good, bad}).ok()) << dtypeName(type);
  };
  check(DType::i8, int8_t(-1), int8_t(100));
  check(DType::u8, uint8_t(255), uint8_t(3));
  check(DType::i16, int16_t(101), int16_t(3));
  check(DType::u16, uint16_t(65535), uint16_t(3));
  check(DType::i32, int32_t(2), int32_t(3));
  check(DType::u32, uint32_t(4294967295u), uint32_t(3));
  check(DType::i64, INT64_MIN, int64_t(3));
  check(DType::u64, uint64_t(UINT64_MAX), uint64_t(3)); // -1 as a signed number
}

TEST(Input, NotFiniteIsRefusedUnlessAllowed) {
  OneInput input(DType::f32);
  EXPECT_TRUE(input.copy<float>({1, -3e38f, 1e-45f, 0}).ok());
  Status status = input.copy<float>({1, 2, std::nanf(""), 0});
  EXPECT_EQ(status.code, StatusCode::damaged);
  EXPECT_NE(status.message.find("sample 1 of the batch (101 of the data), element 0: "
                                "value is NaN"),
            std::string::npos)
      << status.message;
  EXPECT_NE(input.copy<float>({INFINITY, 2}).message.find("an infinity"),
            std::string::npos);
  input.options.rejectNonFinite = false;
  EXPECT_TRUE(input.copy<float>({std::nanf(""), INFINITY}).ok());
}

TEST(Input, HalfAndDoubleAreLookedThroughToo) {
  OneInput half(DType::f16), brain(DType::bf16), wide(DType::f64);
  EXPECT_TRUE(half.copy<uint16_t>({0x3c00, 0x7bff}).ok());
  EXPECT_FALSE(half.copy<uint16_t>({0x3c00, 0x7c00}).ok());
  EXPECT_TRUE(brain.copy<uint16_t>({0x7c00, 0x7f7f}).ok());
  EXPECT_FALSE(brain.copy<uint16_t>({0x3c00, 0xff80}).ok());
  EXPECT_TRUE(wide.copy<double>({1e308, 0}).ok());
  EXPECT_FALSE(wide.copy<double>({1e308, -INFINITY}).ok());
}

} // namespace sluice::test
