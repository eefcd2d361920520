// Drives c_api.c, which uses nothing but the public header.

#include "TestPlan.h"
#include "c_api.h"

#include <sluice/sluice.hpp>

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace sluice::test {

/// The scalar plan with its kernels as machine code, on the disk.
static std::string writePlan(const TemporaryFolder &folder, TestPlan p) {
  for (auto &kernel : p.plan.kernels)
    kernel->generated = true;
  std::ifstream stream(std::string(SLUICE_TEST_IMAGES) + "/good.so", std::ios::binary);
  std::vector<uint8_t> code{std::istreambuf_iterator<char>(stream), {}};
  p.plan.images.push_back(std::make_unique<fbs::CodeImageT>());
  p.plan.images[0]->level = "x86-64-v3";
  p.plan.images[0]->offset = 1;
  p.plan.images[0]->size = code.size();
  std::span<const uint8_t> segments[] = {code};
  std::string path = folder.path + "/scalar.plan";
  Status status = writePlanFile(path, p.flatBuffer(), segments);
  EXPECT_TRUE(status.ok()) << status.message;
  return path;
}

static std::string writePlan(const TemporaryFolder &folder, int64_t accumulate) {
  return writePlan(folder, scalarPlan(2, accumulate, 0.25, 2));
}

TEST(CApi, TrainsSavesAndResumes) {
  TemporaryFolder folder;
  std::string plan = writePlan(folder, 1);
  EXPECT_STREQ(c_api_train(plan.c_str(), (folder.path + "/checkpoints").c_str()), "");
}

TEST(CApi, DescribesAPlan) {
  TemporaryFolder folder;
  EXPECT_STREQ(c_api_describe(writePlan(folder, 1).c_str()), "");
}

TEST(CApi, ReportsEveryMisuse) {
  TemporaryFolder folder;
  EXPECT_STREQ(c_api_misuse(writePlan(folder, 1).c_str()), "");
}

TEST(CApi, AccumulatesAndFlushes) {
  TemporaryFolder folder;
  EXPECT_STREQ(c_api_accumulate(writePlan(folder, 3).c_str()), "");
}

TEST(CApi, HostArenasMayBeTheCallers) {
  TemporaryFolder folder;
  EXPECT_STREQ(c_api_host(writePlan(folder, hostAdamPlan()).c_str()), "");
}

/// `a` in 16 bits with a split master, `b` in 16 bits alone, `n` integers.
static TestPlan narrowPlan() {
  TestPlan p = scalarPlan(1, 1, 0.25, 2);
  p.state("param/a", DType::bf16, {2});
  p.state("master/a/low", DType::i16, {2}, fbs::Role::master);
  p.state("param/b", DType::bf16, {2});
  p.state("param/n", DType::i64, {2}, fbs::Role::buffer);
  return p;
}

TEST(CApi, ReadsAndWritesParametersInAnyForm) {
  TemporaryFolder folder;
  EXPECT_STREQ(c_api_parameters(writePlan(folder, narrowPlan()).c_str()), "");
}

TEST(CppApi, ReadsAndWritesParametersInAnyForm) {
  TemporaryFolder folder;
  api::Plan plan(writePlan(folder, narrowPlan()));
  api::Session session(plan);
  session.writeParameter("a", {0.1f, 0.2f});
  EXPECT_EQ(session.readParameter("a", 2), (std::vector<float>{0.1f, 0.2f}));
  EXPECT_THROW(session.readParameter("a", 3), api::Error);
  EXPECT_THROW(session.writeParameter("n", {1, 2}), api::Error);
}

TEST(CppApi, ChoosesTheBucketByShape) {
  TemporaryFolder folder;
  api::Plan plan(writePlan(folder, twoBucketPlan()));
  ASSERT_EQ(plan.buckets(), 2u);
  EXPECT_EQ(plan.bucket(1), "batch=40");
  EXPECT_EQ(plan.bucket(2), "");
  EXPECT_EQ(plan.batch(1), 40);
  EXPECT_EQ(plan.inputs("step", 1).at(0).shape, std::vector<int64_t>{40});
  EXPECT_EQ(plan.outputs("infer", 1).at(0).shape, std::vector<int64_t>{40});
  EXPECT_THROW(plan.inputs("step", 2), api::Error);

  EXPECT_EQ(plan.findBucket("infer", {{nullptr, {5}}}), 1u);
  api::Session session(plan);
  std::vector<float> few = {0, 1}, many(30, 1.0f);
  EXPECT_EQ(session.step({{few.data(), {2}}}).loss_sum, 5.0);
  EXPECT_EQ(session.bucket(), 0u);
  EXPECT_EQ(session.step({{many.data(), {30}}}).loss_count, 30.0);
  EXPECT_EQ(session.bucket(), 1u);
  EXPECT_EQ(session.samples(), 32);
  session.infer({{many.data(), {30}}});
  EXPECT_EQ(session.output<float>("y").size(), 30u);
  EXPECT_EQ(session.eval({{few.data(), {2}}}).loss_count, 2.0);
  try {
    session.step({{many.data(), {41}}});
    ADD_FAILURE() << "no exception";
  } catch (const api::Error &error) {
    EXPECT_NE(std::string(error.what()).find("no bucket of the plan takes t [41]"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(session.step({{few.data(), {}}}), api::Error);
}

TEST(CppApi, UsesVariantsOfTheLadder) {
  TemporaryFolder folder;
  api::Plan plan(writePlan(folder, ladderPlan()));
  ASSERT_EQ(plan.variants(), 2u);
  EXPECT_EQ(plan.variant(1).memory_fraction, 0.5);
  EXPECT_EQ(plan.variant(0).step_bytes, plan.variant(1).step_bytes + 4096);
  EXPECT_EQ(plan.variant(0).state_bytes, plan.variant(1).state_bytes);
  EXPECT_THROW(plan.variant(2), api::Error);
  sluice_session_options options = {};
  options.variant = 1;
  api::Session session(plan, options), other(plan);
  EXPECT_EQ(session.variant(), 1u);
  float targets[4] = {0, 1, 2, 3};
  EXPECT_EQ(session.step({targets}, 4).loss_sum, other.step({targets}, 4).loss_sum);
  session.useVariant(0);
  other.useVariant(1);
  EXPECT_EQ(session.step({targets}, 4).loss_sum, other.step({targets}, 4).loss_sum);
  EXPECT_EQ(session.variant(), 0u);
  EXPECT_THROW(session.useVariant(2), api::Error);
  EXPECT_EQ(sluice_session_use_variant(nullptr, 0), SLUICE_USAGE);
}

TEST(CppApi, WrapsPlansAndSessions) {
  TemporaryFolder folder;
  api::Plan plan(writePlan(folder, 1));
  EXPECT_EQ(plan.batch(), 2);
  EXPECT_EQ(plan.inputs("step").at(0).name, "t");
  EXPECT_EQ(plan.state().at(0).name, "param/w");
  plan.checkHere();
  api::Session session(plan);
  float targets[2] = {0, 1};
  EXPECT_EQ(session.step({targets}, 2).loss_sum, 5.0);
  float w = 0;
  session.readState("param/w", &w, 4);
  EXPECT_EQ(w, 1.25f);
  session.infer({targets}, 2);
  EXPECT_EQ(session.output<float>("y"), (std::vector<float>{0, 1.25f}));
  session.save(folder.path + "/c");
  api::Session other(plan);
  other.load(folder.path + "/c");
  EXPECT_EQ(other.updates(), 1);
  try {
    session.setHyper("main", "lr", 0.5);
    EXPECT_EQ(session.hyper("main", "lr"), 0.5);
    session.setHyper("main", "lr", std::nan(""));
    EXPECT_FALSE(session.isFrozen("main"));
    EXPECT_THROW(session.freeze("main"), api::Error); // the plan has no control for it
    session.setLr("nobody", 1);
    ADD_FAILURE() << "no exception";
  } catch (const api::Error &error) {
    EXPECT_EQ(error.status(), SLUICE_USAGE);
    EXPECT_NE(std::string(error.what()).find("'nobody'"), std::string::npos);
  }
  EXPECT_THROW(api::Plan("none.plan"), api::Error);
}

} // namespace sluice::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
