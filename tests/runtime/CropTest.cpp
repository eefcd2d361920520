// Outputs without what their inputs were filled up with: shapes, bytes, and what is
// refused in a plan.

#include "TestPlan.h"

#include "runtime/Crop.h"

#include <gtest/gtest.h>
#include <numeric>

namespace sluice::test {

struct CropRule {
  uint32_t dimension;
  int64_t stride, size;
  std::vector<int64_t> steps;
};

/// 'infer' with x of shape [2, 4, 3] and an output of the given shape.
static TestPlan cropped(std::vector<int64_t> shape, const std::vector<CropRule> &rules) {
  TestPlan p;
  p.plan.batch = 2;
  fbs::ProgramT &infer = p.program("infer");
  p.input(infer, "x", DType::f32, {2, 4, 3});
  infer.inputs[0]->fills = true;
  p.output(infer, "y", DType::f32, shape, true);
  for (const CropRule &rule : rules) {
    auto crop = std::make_unique<fbs::CropT>();
    crop->input = 0;
    crop->input_dimension = 1;
    crop->dimension = rule.dimension;
    crop->stride = rule.stride;
    crop->size = rule.size;
    crop->steps = rule.steps;
    infer.outputs[0]->crops.push_back(std::move(crop));
  }
  return p;
}

struct Cropped {
  std::vector<int64_t> shape;
  std::vector<float> values;
  bool operator==(const Cropped &) const = default;
};

/// Of an output whose elements are 0, 1, 2, ... when x had the given length.
static Cropped crop(const TestPlan &p, int64_t samples, int64_t length) {
  PlanPtr plan = p.read();
  const fbs::Port &port = *plan->program("infer")->outputs()->Get(0);
  std::vector<float> whole(port.size() / sizeof(float));
  std::iota(whole.begin(), whole.end(), 0.0f);
  CropShape shape(port, 2, samples, [&](uint32_t, uint32_t) { return length; });
  std::vector<float> values(shape.bytes() / sizeof(float));
  shape.copy(reinterpret_cast<uint8_t *>(whole.data()),
             reinterpret_cast<uint8_t *>(values.data()));
  return {shape.shape(), values};
}

TEST(Crop, TheFirstPositionsOfADimensionStay) {
  TestPlan p = cropped({2, 4, 2}, {{1, 2, 4, {}}});
  EXPECT_EQ(crop(p, 2, 3),
            (Cropped{{2, 3, 2}, {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13}}));
  EXPECT_EQ(crop(p, 1, 1), (Cropped{{1, 1, 2}, {0, 1}}));
  EXPECT_EQ(crop(p, 1, 4).shape, (std::vector<int64_t>{1, 4, 2}));
}

TEST(Crop, TwoDimensionsOfOneLength) {
  TestPlan p = cropped({2, 4, 4}, {{1, 4, 4, {}}, {2, 1, 4, {}}});
  EXPECT_EQ(crop(p, 2, 2), (Cropped{{2, 2, 2}, {0, 1, 4, 5, 16, 17, 20, 21}}));
}

TEST(Crop, SamplesAndPositionsInOneDimension) {
  TestPlan p = cropped({8}, {{0, 1, 4, {}}});
  EXPECT_EQ(crop(p, 2, 3), (Cropped{{6}, {0, 1, 2, 4, 5, 6}}));
}

TEST(Crop, LengthsFollowWindows) {
  // (L + 1) / 2, then two more.
  TestPlan p = cropped({2, 4}, {{1, 1, 4, {1, 1, 2, 1, 2, 1}}});
  EXPECT_EQ(crop(p, 1, 4).shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(crop(p, 1, 2).shape, (std::vector<int64_t>{1, 3}));
  TestPlan valid = cropped({2, 2}, {{1, 1, 2, {1, -2, 1}}});
  EXPECT_EQ(crop(valid, 2, 1), (Cropped{{2, 0}, {}}));
}

TEST(Crop, BadCropsAreRefused) {
  auto refused = [](std::vector<int64_t> shape, std::vector<CropRule> rules,
                    uint32_t input = 0) {
    TestPlan p = cropped(shape, rules);
    p.plan.programs[0]->outputs[0]->crops[0]->input = input;
    auto plan = PlanReader::readMemory(p.file());
    return plan.ok() ? std::string() : plan.status().message;
  };
  auto expect = [](const std::string &message, const char *part) {
    EXPECT_NE(message.find(std::string("output 'y' ") + part), std::string::npos)
        << message;
  };
  EXPECT_EQ(refused({2, 4}, {{1, 1, 4, {}}}), "");
  expect(refused({2, 4}, {{1, 1, 4, {}}}, 1), "follows an input that is not there");
  expect(refused({2, 4}, {{2, 1, 4, {}}}), "has no such dimension");
  expect(refused({2, 4}, {{1, 0, 4, {}}}), "has no such dimension");
  expect(refused({2, 4}, {{1, 1, 3, {}}}), "is cropped across its dimensions");
  expect(refused({2, 4}, {{1, 1, int64_t(1) << 62, {}}}),
         "is cropped across its dimensions");
  expect(refused({2, 4}, {{1, 1, 4, {1, 2}}}), "is cropped by no whole steps");
  expect(refused({2, 4}, {{1, 1, 4, {1, 0, 0}}}), "is cropped by impossible steps");
  expect(refused({2, 4}, {{1, 1, 4, {}}, {1, 2, 2, {}}}),
         "is cropped along axes that cross");
}

TEST(Crop, TensorsThatBringShapesGiveOutputsOfTheirShapes) {
  auto session = makeSession(cropped({2, 4}, {{1, 1, 4, {}}}).read());
  std::vector<float> values(18);
  int64_t shape[] = {2, 3, 3};
  Batch batch;
  batch.data = {values.data()};
  batch.shapes = {shape};
  batch.count = 2;
  ASSERT_TRUE(session->infer(batch).ok());
  EXPECT_EQ(*session->outputShape("y"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(session->output("y")->bytes, 6 * sizeof(float));
  // The next batch has the whole shape.
  values.resize(24);
  batch.data = {values.data()};
  batch.shapes.clear();
  batch.count = 1;
  ASSERT_TRUE(session->infer(batch).ok());
  EXPECT_EQ(*session->outputShape("y"), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(session->output("y")->bytes, 4 * sizeof(float));
  EXPECT_FALSE(session->outputShape("z").ok());
}

} // namespace sluice::test
