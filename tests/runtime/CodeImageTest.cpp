#include "TestPlan.h"

#include "runtime/CodeImage.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace sluice::test {

static std::vector<uint8_t> fileBytes(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

static std::vector<uint8_t> goodImage() {
  return fileBytes(std::string(SLUICE_TEST_IMAGES) + "/good.so");
}

TEST(CodeImage, RunsItsFunctions) {
  auto image = CodeImage::load(goodImage(), "good");
  ASSERT_TRUE(image.ok()) << image.status().message;
  auto rows = reinterpret_cast<KernelFn>((*image)->symbol("test_rows"));
  ASSERT_NE(rows, nullptr);
  float x[2] = {1, 2}, y[2] = {};
  void *buffers[] = {x, y};
  int64_t columns = 1;
  rows(buffers, &columns, 0, 2, 0);
  EXPECT_EQ(y[1], 7.0f);
  EXPECT_EQ((*image)->symbol("missing"), nullptr);
}

TEST(CodeImage, RefusesWhatNeedsSomethingFromOutside) {
  auto image = CodeImage::load(
      fileBytes(std::string(SLUICE_TEST_IMAGES) + "/undefined.so"), "undefined");
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.status().code, StatusCode::damaged);
}

TEST(CodeImage, RefusesRelocations) {
  auto image = CodeImage::load(
      fileBytes(std::string(SLUICE_TEST_IMAGES) + "/relocated.so"), "relocated");
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.status().message.find("relocations"), std::string::npos)
      << image.status().message;
}

TEST(CodeImage, EveryCutIsRefusedOrComplete) {
  std::vector<uint8_t> bytes = goodImage();
  for (size_t size = 0; size < bytes.size(); size += 7) {
    auto image = CodeImage::load({bytes.data(), size}, "cut");
    if (image.ok())
      EXPECT_NE((*image)->symbol("test_rows"), nullptr) << size;
  }
  EXPECT_FALSE(CodeImage::load({bytes.data(), 64}, "cut").ok());
}

static TestPlan planWithCode(const std::vector<std::string> &levels, size_t bytes) {
  TestPlan p;
  p.generated = true;
  fbs::ProgramT &infer = p.program("infer");
  Place x = p.input(infer, "x", DType::f32, {1});
  Place y = p.output(infer, "y", DType::f32, {1}, true);
  p.launch(infer, "test_rows", {x, y}, 1, 1, {1});
  for (const std::string &level : levels) {
    p.plan.images.push_back(std::make_unique<fbs::CodeImageT>());
    p.plan.images.back()->level = level;
    p.plan.images.back()->offset = 1;
    p.plan.images.back()->size = bytes;
  }
  return p;
}

TEST(CodeImage, OfAPlanRunsInASession) {
  std::vector<uint8_t> code = goodImage();
  std::span<const uint8_t> segments[] = {code};
  auto plan =
      PlanReader::readMemory(planWithCode({"x86-64-v3"}, code.size()).file(segments));
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  auto session = Session::create(*plan);
  ASSERT_TRUE(session.ok()) << session.status().message;
  std::vector<float> x = {5};
  ASSERT_TRUE((*session)->infer(batchOf(x)).ok());
  auto y = (*session)->output("y");
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(*reinterpret_cast<const float *>(y->data), 15.0f);
}

TEST(CodeImage, OfAnUnknownLevelCannotRunHere) {
  std::vector<uint8_t> code = goodImage();
  std::span<const uint8_t> segments[] = {code};
  auto plan =
      PlanReader::readMemory(planWithCode({"x86-64-v9"}, code.size()).file(segments));
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  EXPECT_EQ(Session::create(*plan).status().code, StatusCode::cannotRunHere);
  SessionOptions options;
  options.level = FeatureLevel::V3;
  EXPECT_EQ(Session::create(*plan, options).status().code, StatusCode::cannotRunHere);
}

TEST(CpuLevel, NamesAreTheOnesOfPlans) {
  EXPECT_EQ(levelByName("x86-64-v4"), FeatureLevel::V4);
  EXPECT_EQ(levelByName("amx"), FeatureLevel::Amx);
  EXPECT_EQ(levelByName("avx512-bf16"), FeatureLevel::Dots);
  EXPECT_EQ(codeLevelName(FeatureLevel::Amx), "x86-64-v4");
  EXPECT_EQ(codeLevelName(FeatureLevel::Dots), "x86-64-v4");
  EXPECT_EQ(levelByName("x86-64-v5"), std::nullopt);
  // Each level includes those before.
  for (FeatureLevel level : {FeatureLevel::Dots, FeatureLevel::Amx})
    if (canRun(level))
      EXPECT_TRUE(canRun(FeatureLevel::V4));
  if (canRun(FeatureLevel::V4))
    EXPECT_TRUE(canRun(FeatureLevel::V3));
}

} // namespace sluice::test
