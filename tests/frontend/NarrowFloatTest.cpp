// Formats of eight and fewer bits: every value decodes and stays, everything between goes
// to the nearest as LLVM's APFloat rounds it, and four-bit integers share bytes.
#include "frontend/onnx/NarrowFloat.h"
#include "tests/frontend/ImportedModel.h"

#include <cmath>
#include <random>

namespace sluice::test {

namespace {

using frontend::NarrowFloat;

constexpr int32_t allFormats[] = {17, 18, 19, 20, 23};

/// What a Cast of ONNX to the type gives, run in single precision.
std::vector<double> cast(const std::vector<double> &values, int32_t type, bool saturate) {
  ModelBuilder b(23, 11);
  int count = static_cast<int>(values.size());
  b.input("x", {count}).output("y");
  auto &node = b.node("Cast", {"x"}, {"y"});
  set(node, "to", int64_t(type));
  set(node, "saturate", int64_t(saturate));
  RunResult run = runModel(b.save(), {{"x", realTensor({count}, values)}}, {});
  EXPECT_EQ(run.error, "");
  return run.error.empty() ? run.outputs[0].tensor.reals : values;
}

/// The nearest value of the format; no value where it overflows.
std::optional<double> nearest(double x, const NarrowFloat &format) {
  llvm::APFloat value(x);
  bool isLost;
  auto status =
      value.convert(format.semantics(), llvm::APFloat::rmNearestTiesToEven, &isLost);
  if ((status & llvm::APFloat::opOverflow) || !value.isFinite())
    return std::nullopt;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &isLost);
  return value.convertToDouble();
}

/// Values of the format, the middles between them and what is just beside those, and
/// numbers of all magnitudes.
std::vector<double> samples(const NarrowFloat &format) {
  std::vector<double> exact, all;
  for (int bits = 0; bits < (format.mantissa == 1 ? 16 : 256); ++bits)
    if (double value = decode(format, uint8_t(bits)); std::isfinite(value))
      exact.push_back(value);
  std::sort(exact.begin(), exact.end());
  for (size_t i = 0; i < exact.size(); ++i) {
    all.push_back(exact[i]);
    if (i == 0)
      continue;
    float middle = static_cast<float>((exact[i - 1] + exact[i]) / 2);
    for (float x :
         {middle, std::nextafter(middle, -1e30F), std::nextafter(middle, 1e30F)})
      all.push_back(x);
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-20, 20), mantissa(-2, 2);
  for (int i = 0; i < 2000; ++i)
    all.push_back(static_cast<float>(std::ldexp(mantissa(random), exponent(random))));
  return all;
}

TEST(NarrowFloat, RoundsToTheNearestOfEveryFormat) {
  for (int32_t type : allFormats) {
    const NarrowFloat &format = *frontend::narrowFloat(type);
    std::vector<double> x = samples(format);
    std::vector<double> saturated = cast(x, type, true), open = cast(x, type, false);
    for (size_t i = 0; i < x.size(); ++i) {
      double limited = std::copysign(std::min(std::abs(x[i]), format.largest), x[i]);
      double expected = nearest(limited, format).value_or(limited);
      EXPECT_EQ(saturated[i], expected) << type << ": " << x[i];
      bool isInRange = std::abs(expected) < format.largest || saturated[i] == x[i];
      if (isInRange)
        EXPECT_EQ(open[i], expected) << type << ": " << x[i];
    }
  }
}

TEST(NarrowFloat, WhatIsTooLargeOverflows) {
  double infinity = std::numeric_limits<double>::infinity();
  for (int32_t type : allFormats) {
    const NarrowFloat &format = *frontend::narrowFloat(type);
    std::vector<double> x = {format.largest * 2, -format.largest * 2, infinity,
                             -infinity};
    std::vector<double> saturated = cast(x, type, true), open = cast(x, type, false);
    for (size_t i = 0; i < x.size(); ++i) {
      double sign = i % 2 ? -1 : 1;
      EXPECT_EQ(saturated[i], sign * format.largest) << type;
      if (format.hasInfinity)
        EXPECT_EQ(open[i], sign * infinity) << type;
      else if (format.hasNaN)
        EXPECT_TRUE(std::isnan(open[i])) << type;
      else
        EXPECT_EQ(open[i], sign * format.largest) << type;
    }
    double none = cast({std::nan("")}, type, true)[0];
    EXPECT_TRUE(format.hasNaN ? std::isnan(none) : none == 0) << type;
  }
}

TEST(NarrowIntegers, ShareBytesInInitializers) {
  for (bool isRaw : {false, true})
    for (int type : {21, 22}) {
      ModelBuilder b(21, 10);
      b.input("x", {3}).output("y");
      auto &q = *b.model.mutable_graph()->add_initializer();
      q.set_name("q");
      q.set_data_type(type);
      q.add_dims(3);
      if (isRaw)
        q.set_raw_data(std::string("\x81\x0f", 2)); // 1, 8, 15
      else
        for (int byte : {0x81, 0x0f})
          q.add_int32_data(byte);
      b.weight("scale", {}, {0.5});
      b.node("DequantizeLinear", {"q", "scale"}, {"d"});
      b.node("Mul", {"d", "x"}, {"y"});
      RunResult run = runModel(b.save(), {{"x", realTensor({3}, {1, 1, 1})}}, {});
      ASSERT_EQ(run.error, "");
      EXPECT_EQ(run.outputs[0].tensor.reals, type == 21
                                                 ? (std::vector<double>{0.5, 4, 7.5})
                                                 : (std::vector<double>{0.5, -4, -0.5}));
      EXPECT_EQ(run.report.parameters, 0);
    }
}

TEST(NarrowIntegers, OneByteTooFewIsRefused) {
  ModelBuilder b(21, 10);
  b.input("x", {3}).output("y");
  auto &q = *b.model.mutable_graph()->add_initializer();
  q.set_name("q");
  q.set_data_type(22);
  q.add_dims(3);
  q.set_raw_data(std::string("\x81", 1));
  b.weight("scale", {}, {0.5});
  b.node("DequantizeLinear", {"q", "scale"}, {"y"});
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  EXPECT_NE(m.problems.find("it holds 1 bytes, its shape 3 of int4 needs 2"),
            std::string::npos)
      << m.problems;
}

} // namespace

} // namespace sluice::test
