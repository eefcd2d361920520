// Plans of several shapes: what is refused, which bucket is chosen, how small tensors are
// filled up, and that a step in a bucket is the step of a plan of that shape.

#include "TestPlan.h"

#include "runtime/Buckets.h"
#include "runtime/Fill.h"
#include "runtime/Trainer.h"

#include <cstring>
#include <functional>
#include <gtest/gtest.h>

namespace sluice::test {

struct VariantRule {
  const char *name;
  std::function<void(TestPlan &)> breakIt;
  const char *message;
};

static fbs::VariantT &variant(TestPlan &p, size_t i) { return *p.plan.variants[i]; }

static const VariantRule rules[] = {
    {"ProgramIndex", [](auto &p) { variant(p, 1).programs[0] = 99; }, "names program 99"},
    {"ProgramTwice",
     [](auto &p) { variant(p, 1).programs[1] = variant(p, 1).programs[0]; },
     "program 'step' is there twice"},
    {"OtherPrograms",
     [](auto &p) { variant(p, 1).programs.erase(variant(p, 1).programs.begin() + 1); },
     "other programs than the first variant"},
    {"Rows", [](auto &p) { variant(p, 1).batch = 8; }, "has 40 rows, the batch is 8"},
    {"NoBatch", [](auto &p) { variant(p, 1).batch = 0; }, "no name or no batch"},
    {"StepBytes", [](auto &p) { variant(p, 1).step_bytes += 64; },
     "bytes of step reservation"},
    {"PlaceTwice", [](auto &p) { variant(p, 1).bucket = 0; }, "there twice"},
    {"NoGrid", [](auto &p) { variant(p, 1).rung = 1; }, "one for each bucket and rung"},
    {"ImpossibleBucket", [](auto &p) { variant(p, 1).bucket = 1u << 31; },
     "impossible bucket"},
    {"FirstIsAnother",
     [](auto &p) { std::swap(variant(p, 0).bucket, variant(p, 1).bucket); },
     "not the plan's own"},
    {"StepWithAccumulate", [](auto &p) { p.plan.accumulate = 2; }, "with accumulate 2"},
};

class BrokenVariants : public testing::TestWithParam<VariantRule> {};

TEST_P(BrokenVariants, IsRefused) {
  TestPlan p = twoBucketPlan();
  ASSERT_TRUE(PlanReader::readMemory(p.file()).ok());
  GetParam().breakIt(p);
  auto plan = PlanReader::readMemory(p.file());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code, StatusCode::damaged);
  EXPECT_NE(plan.status().message.find(GetParam().message), std::string::npos)
      << plan.status().message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenVariants, testing::ValuesIn(rules),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(Buckets, OneReservationForAll) {
  PlanPtr plan = twoBucketPlan().read();
  EXPECT_EQ(plan->buckets(), 2u);
  EXPECT_EQ(plan->memory().stepBytes, scalarPlan(40, 1, 0.25).read()->memory().stepBytes);
  EXPECT_EQ(plan->programNames(), (std::vector<std::string>{"step", "eval", "infer"}));
  EXPECT_EQ(plan->inputs("step", 1).at(0).shape, std::vector<int64_t>{40});
}

TEST(Buckets, AStepIsThatOfThePlanOfTheShape) {
  auto both = makeSession(twoBucketPlan().read());
  std::vector<float> few = {0, 1}, many(40);
  for (size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<float>(i) / 8;
  StepResult result;
  ASSERT_TRUE(both->step(batchOf(few), result).ok());
  Batch batch = batchOf(many, 2);
  batch.bucket = 1;
  ASSERT_TRUE(both->step(batch, result).ok());
  EXPECT_EQ(both->lastBucket(), 1u);
  EXPECT_EQ(both->samples(), 42);

  auto small = makeSession(scalarPlan(4, 1, 0.25, 2).read());
  StepResult expected;
  ASSERT_TRUE(small->step(batchOf(few), expected).ok());
  float w = scalarState(*small, "param/w");
  auto large = makeSession(scalarPlan(40, 1, 0.25, 2).read());
  ASSERT_TRUE(large->writeState("param/w", &w, sizeof w).ok());
  ASSERT_TRUE(large->step(batchOf(many, 2), expected).ok());
  EXPECT_EQ(result.lossSum, expected.lossSum);
  EXPECT_EQ(scalarState(*both, "param/w"), scalarState(*large, "param/w"));
}

TEST(Buckets, AWindowGoesOverBuckets) {
  auto session = makeSession(twoBucketPlan(2).read());
  std::vector<float> few = {1, 1}, many(40, 3.0f);
  StepResult result;
  ASSERT_TRUE(session->step(batchOf(few), result).ok());
  EXPECT_FALSE(result.updated);
  Batch batch = batchOf(many, 2);
  batch.bucket = 1;
  ASSERT_TRUE(session->step(batch, result).ok());
  EXPECT_TRUE(result.updated);
  EXPECT_EQ(result.windowLossCount, 42);
  // w = 2: the gradients are 2 (w - t), divided once by the global count.
  EXPECT_EQ(scalarState(*session, "param/w"), 2 - 0.25f * ((2 * 2.0f - 40 * 2.0f) / 42));
}

TEST(Buckets, UnknownBucketAndCountOverTheBatch) {
  auto session = makeSession(twoBucketPlan().read());
  std::vector<float> values(5);
  StepResult result;
  Status status = session->step(batchOf(values), result);
  EXPECT_EQ(status.message, "a batch has 1 to 4 samples, 5 are given");
  Batch batch = batchOf(values);
  batch.bucket = 2;
  EXPECT_EQ(session->step(batch, result).message, "there is no bucket 2; the plan has 2");
}

TEST(Buckets, OutputsOfSeveralRowsPerSample) {
  TestPlan p;
  p.plan.batch = 3;
  fbs::ProgramT &infer = p.program("infer");
  p.input(infer, "x", DType::f32, {3, 2});
  p.output(infer, "rows", DType::f32, {6}, true);
  auto session = makeSession(p.read());
  std::vector<float> values = {1, 2, 3, 4};
  Batch batch = batchOf(values);
  batch.count = 2;
  ASSERT_TRUE(session->infer(batch).ok());
  EXPECT_EQ(session->output("rows")->bytes, 4 * sizeof(float));

  infer.mixes = "rows";
  auto mixing = makeSession(p.read());
  EXPECT_EQ(mixing->infer(batch).message,
            "padding would be seen in the output 'rows', where samples meet: a batch "
            "needs all 3 samples, 2 are given");
}

/// Programs 'infer' for [2, length] tokens and a mask, both filled up, and [2] ids.
static TestPlan lengths(std::vector<int64_t> all) {
  TestPlan p;
  p.plan.batch = 2;
  for (size_t i = 0; i < all.size(); ++i) {
    p.plan.programs.push_back(std::make_unique<fbs::ProgramT>());
    fbs::ProgramT &infer = *p.plan.programs.back();
    infer.name = "infer";
    p.input(infer, "tokens", DType::i32, {2, all[i]});
    infer.inputs[0]->fills = true;
    infer.inputs[0]->fill = 7;
    p.input(infer, "ids", DType::i32, {2});
    addVariant(p, "T=" + std::to_string(all[i]), static_cast<uint32_t>(i), 2, i);
  }
  return p;
}

TEST(Buckets, TheSmallestThatFitsIsChosen) {
  PlanPtr plan = lengths({8, 4}).read();
  auto choose = [&](std::vector<int64_t> tokens, std::vector<int64_t> ids) {
    std::span<const int64_t> shapes[] = {tokens, ids};
    return chooseBucket(*plan, "infer", shapes);
  };
  EXPECT_EQ(*choose({2, 4}, {2}), 1u);
  EXPECT_EQ(*choose({1, 3}, {1}), 1u);
  EXPECT_EQ(*choose({2, 5}, {2}), 0u);
  auto tooLong = choose({2, 9}, {2});
  ASSERT_FALSE(tooLong.ok());
  EXPECT_EQ(
      tooLong.status().message,
      "no bucket of the plan takes tokens [2, 9], ids [2]; there are 'T=4' (tokens "
      "[2, 4], ids [2]), 'T=8' (tokens [2, 8], ids [2]). Smaller tensors are filled "
      "up only where the spec's 'pad' or an ignored label says with what");
  EXPECT_FALSE(choose({3, 4}, {3}).ok());
  EXPECT_FALSE(choose({2, 4}, {}).ok());
}

TEST(Buckets, SmallTensorsAreFilledUpInTheReservation) {
  auto plan = lengths({4}).read();
  SessionOptions options;
  std::vector<uint8_t> step(plan->memory().stepBytes + 64);
  auto *aligned = reinterpret_cast<uint8_t *>(
      (reinterpret_cast<uintptr_t>(step.data()) + 63) / 64 * 64);
  options.step = {aligned, plan->memory().stepBytes};
  auto session = makeSession(plan, options);
  int32_t tokens[] = {1, 2, 3}, ids[] = {5};
  int64_t shape[] = {1, 3}, one[] = {1};
  Batch batch;
  batch.data = {tokens, ids};
  batch.shapes = {shape, one};
  batch.count = 1;
  ASSERT_TRUE(session->infer(batch).ok());
  int32_t expected[] = {1, 2, 3, 7, 1, 2, 3, 7};
  EXPECT_EQ(std::memcmp(aligned, expected, sizeof expected), 0);

  int64_t tooLong[] = {1, 5};
  batch.shapes = {tooLong, one};
  EXPECT_EQ(session->infer(batch).message,
            "input 'tokens' has shape [1, 5], which does not fit into [2, 4]");
}

TEST(Fill, CopiesToTheFrontOfEveryDimension) {
  int16_t source[] = {1, 2, 3, 4};
  int16_t target[12];
  int64_t given[] = {2, 1, 2}, full[] = {2, 2, 3};
  copyFilled(DType::i16, reinterpret_cast<uint8_t *>(source), given,
             reinterpret_cast<uint8_t *>(target), full, -9);
  int16_t expected[] = {1, 2, -9, -9, -9, -9, 3, 4, -9, -9, -9, -9};
  EXPECT_EQ(std::memcmp(target, expected, sizeof target), 0);
  int64_t none[] = {0, 1, 2};
  copyFilled(DType::i16, reinterpret_cast<uint8_t *>(source), none,
             reinterpret_cast<uint8_t *>(target), full, 1);
  for (int16_t value : target)
    EXPECT_EQ(value, 1);
}

} // namespace sluice::test
