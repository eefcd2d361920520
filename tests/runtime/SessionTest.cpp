#include "TestPlan.h"

#include "runtime/Safetensors.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace sluice::test {

static StepResult step(Session &session, const std::vector<float> &targets) {
  StepResult result;
  Status status = session.step(batchOf(targets, session.samples()), result);
  EXPECT_TRUE(status.ok()) << status.message;
  return result;
}

TEST(Session, StepTrains) {
  auto session = makeSession(scalarPlan(2, 1, 0.25, 2).read());
  StepResult result = step(*session, {0, 1});
  EXPECT_EQ(result.lossSum, 5.0);
  EXPECT_EQ(result.loss(), 2.5);
  EXPECT_TRUE(result.updated);
  EXPECT_EQ(scalarState(*session, "param/w"), 1.25f); // 2 - 0.25 * (4 + 2) / 2
  EXPECT_EQ(session->updates(), 1);
  EXPECT_EQ(session->samples(), 2);
  int64_t stored = 0;
  ASSERT_TRUE(session->readState("step", &stored, 8).ok());
  EXPECT_EQ(stored, 1);
}

TEST(Session, ShortBatchCountsItsRealSamplesOnly) {
  auto session = makeSession(scalarPlan(4, 1, 0.25, 2).read());
  StepResult result = step(*session, {0});
  EXPECT_EQ(result.lossCount, 1.0);
  EXPECT_EQ(scalarState(*session, "param/w"), 1.0f);
  EXPECT_EQ(session->samples(), 1);
}

// Case A1: the mean over the window, not the mean of means.
TEST(Accumulation, DividesByTheCountOfTheWindow) {
  auto session = makeSession(scalarPlan(3, 2, 1, 2).read());
  EXPECT_FALSE(step(*session, {0}).updated);
  EXPECT_EQ(scalarState(*session, "param/w"), 2.0f);
  StepResult result = step(*session, {1, 1, 1});
  EXPECT_TRUE(result.updated);
  EXPECT_EQ(scalarState(*session, "param/w"), 2.0f - 2.5f);
  EXPECT_EQ(result.lossSum, 3.0);
  EXPECT_EQ(result.windowLossSum, 7.0);
  EXPECT_EQ(result.windowLossCount, 4.0);
}

// Case A2: three micro-batches of gradient 1, accumulate 2, SGD lr 1: two updates of -1.
TEST(Accumulation, PartialWindowIsNeitherHalvedNorLost) {
  auto session = makeSession(scalarPlan(1, 2, 1, 0).read());
  step(*session, {-0.5f});
  step(*session, {-0.5f});
  EXPECT_EQ(scalarState(*session, "param/w"), -1.0f);
  step(*session, {-1.5f});
  StepResult result;
  ASSERT_TRUE(session->flush(result).ok());
  EXPECT_TRUE(result.updated);
  EXPECT_EQ(scalarState(*session, "param/w"), -2.0f);
  EXPECT_EQ(session->updates(), 2);
  ASSERT_TRUE(session->flush(result).ok());
  EXPECT_FALSE(result.updated);
  EXPECT_EQ(session->updates(), 2);
}

// Case A3: linear decay over 10 updates, accumulate 4.
TEST(Accumulation, RateChangesOncePerUpdate) {
  TestPlan p = scalarPlan(1, 4, 1);
  p.plan.groups[0]->schedule = fbs::ScheduleKind::linear;
  p.plan.groups[0]->total_steps = 10;
  auto session = makeSession(p.read());
  for (int update = 0; update < 10; ++update)
    for (int micro = 0; micro < 4; ++micro) {
      EXPECT_NEAR(*session->rate(), 1.0 - update / 10.0, 1e-15);
      step(*session, {0});
      EXPECT_FLOAT_EQ(scalarState(*session, "control/main/lr"),
                      static_cast<float>(1.0 - update / 10.0));
    }
  EXPECT_NEAR(*session->rate(), 0.0, 1e-15);
}

TEST(Session, RefusedBatchChangesNothing) {
  auto session = makeSession(scalarPlan(2, 1, 1, 2).read());
  StepResult result;
  Status status = session->step(batchOf({1, std::nanf("")}), result);
  EXPECT_EQ(status.code, StatusCode::damaged);
  EXPECT_EQ(session->updates(), 0);
  EXPECT_EQ(session->samples(), 0);
  EXPECT_EQ(scalarState(*session, "param/w"), 2.0f);
  EXPECT_FALSE(session->output("loss_sum").ok());
  EXPECT_EQ(session->step(batchOf({1, 2, 3}), result).code, StatusCode::usage);
  EXPECT_EQ(session->step(batchOf({}), result).code, StatusCode::usage);
  EXPECT_EQ(session->step(Batch{}, result).code, StatusCode::usage);
}

TEST(Session, EvalAndInferLeaveTheStateAlone) {
  auto session = makeSession(scalarPlan(3, 1, 1, 2).read());
  StepResult result;
  ASSERT_TRUE(session->eval(batchOf({0, 1}), result).ok());
  EXPECT_EQ(result.loss(), 2.5);
  ASSERT_TRUE(session->infer(batchOf({3, 4})).ok());
  auto y = session->output("y");
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(y->bytes, 8u); // the real samples
  float values[2];
  std::memcpy(values, y->data, 8);
  EXPECT_EQ(values[1], 8.0f);
  EXPECT_EQ(scalarState(*session, "param/w"), 2.0f);
  EXPECT_EQ(session->updates(), 0);
  EXPECT_NE(session->output("z").status().message.find("'infer' has no output 'z'"),
            std::string::npos);
}

TEST(Session, FixedRateReplacesTheSchedule) {
  auto session = makeSession(scalarPlan(1, 1, 1, 2).read());
  ASSERT_TRUE(session->setRate("main", 0.125).ok());
  step(*session, {0});
  EXPECT_EQ(scalarState(*session, "param/w"), 1.5f);
  ASSERT_TRUE(session->setRate("main", std::nan("")).ok());
  EXPECT_EQ(*session->rate("main"), 1.0);
  EXPECT_EQ(session->setRate("other", 1).code, StatusCode::usage);
}

TEST(Session, HyperParametersAreControls) {
  TestPlan plan = scalarPlan(1, 1, 1, 2);
  for (const char *name : {"beta1", "beta1_rest", "weight_decay", "active"})
    plan.control(std::string("main/") + name, DType::f32);
  auto session = makeSession(plan.read());
  ASSERT_TRUE(session->setHyper("main", "beta1", 0.75).ok());
  step(*session, {0});
  EXPECT_EQ(scalarState(*session, "control/main/beta1"), 0.75f);
  EXPECT_EQ(scalarState(*session, "control/main/beta1_rest"), 0.25f);
  EXPECT_EQ(scalarState(*session, "control/main/active"), 1.0f);
  ASSERT_TRUE(session->setFrozen("main", true).ok());
  step(*session, {0});
  EXPECT_EQ(scalarState(*session, "control/main/active"), 0.0f);
  using Lines = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(session->changes(), (Lines{{"control/main/beta1", "0x1.8p-1"},
                                       {"control/main/frozen", "1"},
                                       {"control/main/skipped", "1"}}));
  auto other = makeSession(plan.read());
  for (const auto &[key, value] : session->changes())
    EXPECT_TRUE(other->applyChange(key, value).ok()) << key;
  EXPECT_EQ(other->changes(), session->changes());
  other->clearChanges();
  EXPECT_TRUE(other->changes().empty());
  EXPECT_EQ(*other->hyper("main", "beta1"), 0.0); // the plan's
}

TEST(Session, HyperParametersAreChecked) {
  TestPlan plan = scalarPlan(1, 1, 1, 2);
  plan.control("main/beta1", DType::f32);
  auto session = makeSession(plan.read());
  for (double value : {1.0, -0.5, HUGE_VAL})
    EXPECT_EQ(session->setHyper("main", "beta1", value).code, StatusCode::usage);
  EXPECT_EQ(session->setHyper("main", "eps", 0.5).code, StatusCode::usage);
  EXPECT_EQ(session->setHyper("", "clip_max", 0.5).code, StatusCode::usage);
  EXPECT_EQ(session->setFrozen("main", true).code, StatusCode::usage); // has no control
  EXPECT_EQ(session->applyChange("control/main/beta1", "fast").code, StatusCode::damaged);
  EXPECT_EQ(session->applyChange("control/main/skipped", "-1").code, StatusCode::damaged);
  EXPECT_EQ(session->applyChange("control/none/frozen", "1").code, StatusCode::usage);
  EXPECT_TRUE(session->changes().empty());
}

TEST(Session, CallersMemoryIsUsedAndChecked) {
  PlanPtr plan = scalarPlan(2, 1, 0.25, 2).read();
  PlanMemory bytes = plan->memory();
  alignas(64) uint8_t state[1024], stepBytes[1024];
  std::memset(state, 0xab, sizeof state);
  std::memset(stepBytes, 0xab, sizeof stepBytes);
  SessionOptions options;
  options.state = {state, bytes.stateBytes};
  options.step = {stepBytes, bytes.stepBytes};
  auto session = makeSession(plan, options);
  step(*session, {0, 1});
  EXPECT_EQ(scalarState(*session, "param/w"), 1.25f);
  EXPECT_EQ(state[bytes.stateBytes], 0xab);
  EXPECT_EQ(stepBytes[bytes.stepBytes], 0xab);

  options.resolver = testKernel;
  options.state = {state + 4, bytes.stateBytes};
  EXPECT_EQ(Session::create(plan, options).status().code, StatusCode::usage);
  options.state = {state, bytes.stateBytes - 1};
  EXPECT_EQ(Session::create(plan, options).status().code, StatusCode::doesNotFit);
}

TEST(Session, InitialStateComesFromTheFileBesideThePlan) {
  TemporaryFolder folder;
  TestPlan p = scalarPlan(1, 1, 1);
  p.tensor("param/w").init = fbs::InitKind::file;
  std::string path = folder.path + "/m.plan";
  ASSERT_TRUE(writePlanFile(path, p.flatBuffer(), {}).ok());
  PlanPtr plan = *PlanReader::readFile(path);
  SessionOptions options;
  options.resolver = testKernel;
  Status gone = Session::create(plan, options).status();
  EXPECT_EQ(gone.code, StatusCode::damaged);
  EXPECT_NE(gone.message.find("m.safetensors"), std::string::npos);

  float w = 7, pair[2] = {1, 2};
  auto write = [&](const TensorToWrite &tensor) {
    ASSERT_TRUE(writeSafetensors(folder.path + "/m.safetensors", {&tensor, 1}, {}).ok());
  };
  write({"param/w", DType::f32, {2}, pair, 8});
  EXPECT_NE(Session::create(plan, options)
                .status()
                .message.find("f32[2], the plan "
                              "expects f32[]"),
            std::string::npos);
  write({"param/u", DType::f32, {}, &w, 4});
  EXPECT_EQ(Session::create(plan, options).status().code, StatusCode::damaged);
  write({"param/w", DType::f32, {}, &w, 4});
  EXPECT_EQ(scalarState(*makeSession(plan), "param/w"), 7.0f);
}

TEST(Session, FillsEveryElementType) {
  TestPlan p = scalarPlan(1, 1, 1);
  const DType types[] = {DType::f64, DType::f16, DType::bf16, DType::i8,
                         DType::i32, DType::i64, DType::u16,  DType::i1};
  for (DType type : types) {
    std::string name = "param/" + std::string(dtypeName(type));
    p.state(name, type, {2});
    p.tensor(name).init = fbs::InitKind::fill;
    p.tensor(name).fill = 1;
  }
  auto session = makeSession(p.read());
  auto second = [&](const char *name, auto expected) {
    decltype(expected) values[2] = {};
    ASSERT_TRUE(session->readState(name, values, sizeof values).ok());
    EXPECT_EQ(values[1], expected) << name;
  };
  second("param/f64", 1.0);
  second("param/f16", uint16_t(0x3c00));
  second("param/bf16", uint16_t(0x3f80));
  second("param/i8", int8_t(1));
  second("param/i32", int32_t(1));
  second("param/i64", int64_t(1));
  second("param/u16", uint16_t(1));
  second("param/i1", uint8_t(1));
}

TEST(Session, WeightsLoadByNameWithOrWithoutPrefix) {
  TemporaryFolder folder;
  std::string path = folder.path + "/w.safetensors";
  std::vector<std::string> lines;
  SessionOptions options;
  options.log = [&](const std::string &line) { lines.push_back(line); };
  auto session = makeSession(scalarPlan(1, 1, 1).read(), options);
  float w = 3;
  for (const char *name : {"w", "param/w"}) {
    w += 1;
    std::vector<TensorToWrite> tensors = {{name, DType::f32, {}, &w, 4},
                                          {"more", DType::f32, {}, &w, 4}};
    ASSERT_TRUE(writeSafetensors(path, tensors, {}).ok());
    Status status = session->loadWeights(path);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(scalarState(*session, "param/w"), w);
  }
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("'more' is not used"), std::string::npos);
  TensorToWrite other = {"u", DType::f32, {}, &w, 4};
  ASSERT_TRUE(writeSafetensors(path, {&other, 1}, {}).ok());
  Status status = session->loadWeights(path);
  EXPECT_EQ(status.code, StatusCode::refused);
  EXPECT_NE(status.message.find("lacks 'param/w'"), std::string::npos);
}

TEST(Session, ReservationsBeyondTheMachineDoNotFit) {
  TestPlan p = scalarPlan(1, 1, 1);
  p.plan.step_bytes = uint64_t(1) << 46;
  SessionOptions options;
  options.resolver = testKernel;
  EXPECT_EQ(Session::create(p.read(), options).status().code, StatusCode::doesNotFit);
}

} // namespace sluice::test
