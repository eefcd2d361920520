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
static std::string writePlan(const TemporaryFolder &folder, int64_t accumulate) {
  TestPlan p = scalarPlan(2, accumulate, 0.25, 2);
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
