// Parameters in codes: between all formats through checkpoints, by the reference of
// kernels/StoredFormats.h; and plans whose codes do not fit.

#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/StoredCodes.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace sluice::test {

namespace {

const std::vector<int64_t> kShape = {8, 64};
constexpr size_t kCount = 512;

/// The scalar plan with a matrix in a format.
TestPlan codedPlan(StoredFormat format, bool hasMaster = false) {
  TestPlan p = scalarPlan(1, 1, 0.25, 2);
  const FormatTraits &traits = traitsOf(format);
  if (traits.bits >= 16) {
    p.state("param/a",
            format == StoredFormat::fp32   ? DType::f32
            : format == StoredFormat::bf16 ? DType::bf16
                                           : DType::f16,
            kShape);
    return p;
  }
  std::vector<int64_t> codes = kShape;
  if (traits.bits == 4)
    codes = {codeBytes(format, kShape)};
  p.state("param/a", DType::i8, codes);
  p.tensor("param/a").format = traits.name;
  p.tensor("param/a").value_shape = kShape;
  bool isReal = traits.scale == ScaleKind::real;
  p.state("scale/a/blocks", isReal ? DType::f32 : DType::i8,
          {blocksOf(format, kShape).count()}, fbs::Role::control);
  if (traits.scale == ScaleKind::twoLevel)
    p.state("scale/a/tensor", DType::f32, {1}, fbs::Role::control);
  if (hasMaster)
    p.state("master/a", DType::f32, kShape, fbs::Role::master);
  return p;
}

std::vector<float> someValues(uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float &value : values)
    value = std::ldexp(normal(random), static_cast<int>(random() % 8));
  return values;
}

std::vector<float> parameter(const Session &session) {
  std::vector<float> values(kCount);
  Status status = session.readParameter("a", values);
  EXPECT_TRUE(status.ok()) << status.message;
  return values;
}

std::vector<StoredFormat> formats() {
  std::vector<StoredFormat> all;
  for (int i = 0; i < storedFormatCount; ++i)
    all.push_back(static_cast<StoredFormat>(i));
  return all;
}

TEST(StoredCodes, CheckpointsMoveBetweenAllFormats) {
  for (StoredFormat from : formats()) {
    TestPlan source = codedPlan(from);
    auto session = makeSession(source.read());
    ASSERT_TRUE(session->writeParameter("a", someValues()).ok());
    std::vector<float> values = parameter(*session);
    EXPECT_EQ(values, roundedTo(from, kShape, someValues())) << traitsOf(from).name;
    TemporaryFolder folder;
    ASSERT_TRUE(saveCheckpoint(*session, folder.path).ok());
    for (StoredFormat to : formats()) {
      auto other = makeSession(codedPlan(to).read());
      auto loaded = loadCheckpoint(*other, folder.path);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message;
      std::vector<float> expected = from == to ? values : roundedTo(to, kShape, values);
      EXPECT_EQ(parameter(*other), expected)
          << traitsOf(from).name << " to " << traitsOf(to).name;
    }
  }
}

/// The scales of a file are used: those that would follow from the values can differ.
TEST(StoredCodes, TheSameFormatHasTheSameCodes) {
  for (StoredFormat format : formats()) {
    if (traitsOf(format).bits >= 16)
      continue;
    TestPlan p = codedPlan(format);
    auto session = makeSession(p.read());
    std::vector<float> values = someValues();
    EncodedTensor encoded = encodeTensor(format, kShape, values, StochasticKey{1, 2, 3});
    auto put = [&](const char *name, const void *bytes, size_t size) {
      if (p.plan.state.size() && session->plan().state(name))
        EXPECT_TRUE(session->writeState(name, bytes, size).ok());
    };
    put("param/a", encoded.codes.data(), encoded.codes.size());
    put("scale/a/blocks", encoded.scales.data(), encoded.scales.size());
    put("scale/a/tensor", &encoded.global, 4);
    TemporaryFolder folder;
    ASSERT_TRUE(saveCheckpoint(*session, folder.path).ok());
    auto other = makeSession(p.read());
    ASSERT_TRUE(loadCheckpoint(*other, folder.path).ok());
    for (const char *name : {"param/a", "scale/a/blocks", "scale/a/tensor"})
      if (session->plan().state(name)) {
        EXPECT_TRUE(std::ranges::equal(session->state(name), other->state(name)))
            << traitsOf(format).name << " " << name;
      }
  }
}

TEST(StoredCodes, AMasterIsWhatIsSavedAndWhatCodesFollow) {
  TestPlan p = codedPlan(StoredFormat::mxfp4, true);
  auto session = makeSession(p.read());
  std::vector<float> values = someValues();
  ASSERT_TRUE(session->writeParameter("a", values).ok());
  EXPECT_EQ(parameter(*session), values);
  TemporaryFolder folder;
  ASSERT_TRUE(saveCheckpoint(*session, folder.path).ok());
  auto wide = makeSession(codedPlan(StoredFormat::fp32).read());
  ASSERT_TRUE(loadCheckpoint(*wide, folder.path).ok());
  EXPECT_EQ(parameter(*wide), values);
  auto again = makeSession(p.read());
  ASSERT_TRUE(loadCheckpoint(*again, folder.path).ok());
  EXPECT_TRUE(std::ranges::equal(session->state("param/a"), again->state("param/a")));
  EXPECT_EQ(parameter(*again), values);
}

std::string refusal(const TestPlan &p) {
  auto plan = PlanReader::readMemory(p.file());
  return plan ? "" : plan.status().message;
}

/// A second moment of few bits: its checkpoint has values, the same codes come back, and
/// values of another plan get no code of 0.
TEST(StoredCodes, MomentsComeBackAndStayAboveZero) {
  for (StoredFormat format : formats()) {
    if (traitsOf(format).bits >= 16)
      continue;
    SCOPED_TRACE(traitsOf(format).name);
    TestPlan p = codedPlan(format), wide = codedPlan(StoredFormat::fp32);
    p.tensor("param/a").name = "opt/a/v";
    p.tensor("opt/a/v").role = fbs::Role::moment;
    p.tensor("scale/a/blocks").name = "scale/opt/a/v/blocks";
    if (traitsOf(format).scale == ScaleKind::twoLevel)
      p.tensor("scale/a/tensor").name = "scale/opt/a/v/tensor";
    wide.tensor("param/a").name = "opt/a/v";
    wide.tensor("opt/a/v").role = fbs::Role::moment;
    std::vector<float> squares = someValues();
    for (size_t i = 0; i < squares.size(); ++i) // from 1e-30 on
      squares[i] = std::ldexp(squares[i] * squares[i], -static_cast<int>(i % 100));
    auto session = makeSession(wide.read());
    ASSERT_TRUE(session->writeState("opt/a/v", squares.data(), squares.size() * 4).ok());
    TemporaryFolder exact, folder;
    ASSERT_TRUE(saveCheckpoint(*session, exact.path).ok());
    auto coded = makeSession(p.read()), again = makeSession(p.read());
    auto loaded = loadCheckpoint(*coded, exact.path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message;
    const fbs::StateTensor *moment = coded->plan().state("opt/a/v");
    std::vector<float> values = decodeState(*coded, *moment);
    EXPECT_GT(*std::ranges::min_element(values), 0);
    ASSERT_TRUE(saveCheckpoint(*coded, folder.path).ok());
    ASSERT_TRUE(loadCheckpoint(*again, folder.path).ok());
    EXPECT_EQ(decodeState(*again, *moment), values);
    EXPECT_TRUE(std::ranges::equal(again->state("opt/a/v"), coded->state("opt/a/v")));
  }
}

TEST(StoredCodes, PlansWithOtherBytesAreRefused) {
  auto refused = [](auto change, const std::string &expected) {
    TestPlan p = codedPlan(StoredFormat::nvfp4, true);
    change(p);
    std::string message = refusal(p);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  };
  std::string codes = "has no codes, scales and master of the format";
  refused(
      [](TestPlan &p) { p.tensor("param/a").format = "fp3"; },
      "is in the format 'fp3', expected a parameter or a moment in one of fp32, bf16");
  refused([](TestPlan &p) { p.tensor("param/a").value_shape = {8, 32}; }, codes);
  refused([](TestPlan &p) { p.tensor("param/a").value_shape = {-8, 64}; },
          "values of a shape that its codes do not fill");
  refused([](TestPlan &p) { p.tensor("param/a").value_shape = {1 << 30, 1 << 30}; },
          "values of a shape that its codes do not fill");
  refused([](TestPlan &p) { p.tensor("scale/a/blocks").name = "scale/b/blocks"; }, codes);
  refused([](TestPlan &p) { p.tensor("scale/a/tensor").name = "scale/a"; }, codes);
  refused([](TestPlan &p) { p.tensor("param/a").format = "mxfp8"; }, codes);
  refused([](TestPlan &p) { p.tensor("master/a").format = "mxfp8"; },
          "expected a parameter or a moment in one of");
}

} // namespace

} // namespace sluice::test
