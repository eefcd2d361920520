// Which kernels a plan runs on.

#include "TestPlan.h"

#include "kernels/Params.h"
#include "runtime/KernelTable.h"

#include <gtest/gtest.h>

namespace sluice::test {

/// y = x * w, 4 x 4 of a format.
static TestPlan productPlan(int64_t format) {
  GemmParams p;
  p.m = p.n = p.k = 4, p.aRow = p.bRow = p.cRow = 4;
  p.aType = p.bType = format;
  DType type = format == format::kBf16 ? DType::bf16 : DType::f32;
  TestPlan plan;
  fbs::ProgramT &infer = plan.program("infer");
  Place x = plan.input(infer, "x", type, {4, 4}, false);
  Place w = plan.input(infer, "w", type, {4, 4}, false);
  Place y = plan.output(infer, "y", DType::f32, {4, 4});
  Place workspace = plan.buffer(infer, static_cast<uint64_t>(gemmWorkerBytes(p)));
  plan.launch(infer, "gemm_f32", {x, w, y, workspace}, gemmUnits(p), 1, packParams(p));
  return plan;
}

TEST(KernelTable, NamesTheKernelThatIsMissing) {
  TestPlan p = scalarPlan(1, 1, 1);
  p.plan.kernels[0]->name = "no_such_kernel";
  auto session = Session::create(p.read());
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code, StatusCode::cannotRunHere);
  EXPECT_NE(session.status().message.find("'no_such_kernel'"), std::string::npos);
}

TEST(KernelTable, LevelsForProductsOfBf16AreForPlansThatHaveThem) {
  PlanPtr wide = productPlan(format::kF32).read(),
          narrow = productPlan(format::kBf16).read();
  EXPECT_FALSE(multipliesBf16(*wide));
  EXPECT_TRUE(multipliesBf16(*narrow));
  auto level = chooseLevel(*wide);
  ASSERT_TRUE(level.ok()) << level.status().message;
  EXPECT_LE(*level, FeatureLevel::V4);
  level = chooseLevel(*narrow);
  ASSERT_TRUE(level.ok()) << level.status().message;
  EXPECT_EQ(*level == FeatureLevel::Amx, canRun(FeatureLevel::Amx));
  EXPECT_EQ(*level >= FeatureLevel::Dots,
            canRun(FeatureLevel::Amx) || canRun(FeatureLevel::Dots));
  EXPECT_TRUE(bindKernels(*narrow, *level).ok());
}

/// Forced where it lacks something, a level is refused with what that is; nothing runs on
/// another in its place.
TEST(KernelTable, TilesThatAreNotThereAreRefused) {
  PlanPtr plan = productPlan(format::kBf16).read();
  auto level = chooseLevel(*plan, FeatureLevel::Amx);
  std::vector<std::string> missing = missingFeatures(FeatureLevel::Amx);
  if (missing.empty()) {
    ASSERT_TRUE(level.ok()) << level.status().message;
    EXPECT_EQ(*level, FeatureLevel::Amx);
    return;
  }
  ASSERT_FALSE(level.ok());
  EXPECT_EQ(level.status().code, StatusCode::cannotRunHere);
  std::string list;
  for (const std::string &feature : missing)
    list += (list.empty() ? "" : ", ") + feature;
  EXPECT_EQ(level.status().message,
            "this processor cannot run amx code: it lacks " + list);
}

} // namespace sluice::test
