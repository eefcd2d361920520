// Stored formats in the graph: decompositions and vector code give the bits of the plain
// reference (kernels/StoredFormats.h), which tests/kernels checks.
#include "kernels/Minifloat.h"
#include "kernels/StoredFormats.h"
#include "tests/ir/DecompositionCheck.h"
#include "tests/ir/VectorJit.h"

#include <bit>
#include <cmath>
#include <limits>

namespace sluice::graph {
namespace {

std::vector<StoredFormat> formats() {
  std::vector<StoredFormat> all;
  for (int i = 1; i < storedFormatCount; ++i)
    all.push_back(static_cast<StoredFormat>(i));
  return all;
}

llvm::StringRef nameOf(StoredFormat format) { return traitsOf(format).name; }

Build quantize(StoredFormat format, bool given, bool stochastic) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<QuantizeOp>(b.getUnknownLoc(), mlir::ValueRange(x), nameOf(format),
                                given, stochastic);
  };
}
Build dequantize(StoredFormat format, Shape shape) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<DequantizeOp>(b.getUnknownLoc(), mlir::ValueRange(x), nameOf(format),
                                  shape, 1);
  };
}

/// Values of many sizes, zeros and a block of nothing else.
HostTensor mixed(Shape shape, unsigned seed) {
  HostTensor x = uniform(std::move(shape), -1, 1, seed);
  for (size_t i = 0; i < x.reals.size(); ++i)
    x.reals[i] = i % 97 == 0 || i / 256 == 1
                     ? 0
                     : static_cast<float>(std::ldexp(x.reals[i], -int(i * 7 % 30)));
  return x;
}

void expectSame(const std::vector<HostTensor> &a, const std::vector<HostTensor> &b,
                const std::string &what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(a[r].shape, b[r].shape) << what;
    ASSERT_EQ(a[r].integers, b[r].integers) << what << ", result " << r;
    ASSERT_EQ(a[r].reals.size(), b[r].reals.size());
    for (size_t i = 0; i < a[r].reals.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint64_t>(a[r].reals[i] + 0.0),
                std::bit_cast<uint64_t>(b[r].reals[i] + 0.0))
          << what << ", result " << r << " at " << i;
  }
}

TEST(Stored, DecompositionsHaveTheBitsOfTheReference) {
  for (StoredFormat format : formats())
    for (const Shape &shape : {Shape{256, 384}, Shape{4, 8, 64}, Shape{32}}) {
      HostTensor x = mixed(shape, 3), noise = uniform(shape, 0, 1, 4);
      for (double &value : noise.reals)
        value = std::floor(value * 0x1p24) * 0x1p-24;
      std::string what =
          nameOf(format).str() + " of rank " + std::to_string(shape.size());
      for (bool stochastic : {false, true}) {
        std::vector<HostTensor> inputs = {x};
        if (stochastic)
          inputs.push_back(noise);
        Build build = quantize(format, false, stochastic);
        std::vector<HostTensor> stored = run(build, inputs, Precision::Single);
        expectSame(stored, runDecomposed(build, inputs, Precision::Single), what);
        Build back = dequantize(format, shape);
        std::vector<HostTensor> values = run(back, stored, Precision::Single);
        expectSame(values, runDecomposed(back, stored, Precision::Single), what);
        if (stochastic)
          continue;
        std::vector<float> floats(x.reals.begin(), x.reals.end());
        std::vector<float> expected = roundedTo(format, shape, floats);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_EQ(values[0].reals[i], expected[i]) << what << " at " << i;
      }
    }
}

TEST(Stored, AGivenScaleIsUsedAndClips) {
  HostTensor x = real({4}, {1, -3, 100, 0.5}), scale = real({1}, {0x1p-8});
  Build build = quantize(StoredFormat::e4m3, true, false);
  std::vector<HostTensor> stored = run(build, {x, scale}, Precision::Single);
  expectSame(stored, runDecomposed(build, {x, scale}, Precision::Single), "e4m3");
  expectReals(run(dequantize(StoredFormat::e4m3, {4}), stored)[0], {1, -1.75, 1.75, 0.5});
}

HostTensor everyCode(int64_t count) {
  std::vector<int64_t> codes;
  for (int64_t i = 0; i < count; ++i)
    codes.push_back(static_cast<int8_t>(i));
  return integer({count}, codes, 8);
}

Build encode(const char *format) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<MiniEncodeOp>(b.getUnknownLoc(), x[0], x[1],
                                  x.size() > 2 ? x[2] : mlir::Value(), format);
  };
}

/// All kinds of bit patterns, and what lies between codes.
HostTensor patterns(const Minifloat &format) {
  std::vector<double> x;
  std::mt19937 random(5);
  for (int i = 0; i < 4096; ++i)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint32_t code = 0; code + 1 < format.signBit(); ++code) {
    float a = minifloat::decode(format, code), b = minifloat::decode(format, code + 1);
    for (float value : {a, (a + b) / 2, std::nextafterf((a + b) / 2, 0), -a})
      x.push_back(value);
  }
  const double inf = std::numeric_limits<double>::infinity();
  for (double value : {inf, -inf, std::nan(""), -0.0, 0.0, 0x1p-149, 1e38})
    x.push_back(value);
  x.resize((x.size() + 15) / 16 * 16, 1.0);
  return real({int64_t(x.size())}, x);
}

TEST(Stored, VectorCodeIsTheReference) {
  const std::pair<const char *, const Minifloat *> elements[] = {
      {"e4m3", &minifloat::e4m3}, {"e5m2", &minifloat::e5m2}, {"e2m1", &minifloat::e2m1}};
  for (const char *cpu : {"", "haswell"}) {
    for (auto [name, format] : elements) {
      HostTensor x = patterns(*format);
      int64_t count = x.size();
      HostTensor noise = uniform({count}, 0, 1, 8);
      for (double &value : noise.reals)
        value = std::floor(value * 0x1p24) * 0x1p-24;
      for (double size : {1.0, 0.0, 0x1.8p-100, 0x1p-126, double(std::nanf(""))}) {
        HostTensor scale = real({count}, std::vector<double>(count, size));
        expectAsInterpreted(encode(name), {x, scale}, name, cpu);
        expectAsInterpreted(encode(name), {x, scale, noise}, name, cpu);
      }
      HostTensor codes = everyCode(256), scales = uniform({256}, 0.5, 2, 9);
      for (double &value : scales.reals)
        value = static_cast<float>(value);
      expectAsInterpreted(binary<MiniDecodeOp>(name), {codes, scales}, name, cpu);
      HostTensor sizes = x;
      for (double &value : sizes.reals)
        value = std::fabs(value);
      expectAsInterpreted(unary<PowerCodeOp>(name), {sizes}, "power_code", cpu);
    }
    expectAsInterpreted(unary<PowerValueOp>(), {everyCode(256)}, "power_value", cpu);
    HostTensor low = everyCode(256), high = low;
    std::reverse(high.integers.begin(), high.integers.end());
    expectAsInterpreted(binary<PackNibblesOp>(), {low, high}, "pack_nibbles", cpu);
    for (bool isHigh : {false, true})
      expectAsInterpreted(unary<UnpackNibbleOp>(isHigh), {low}, "unpack_nibble", cpu);
  }
}

TEST(Stored, ErrorsNameTheFormats) {
  auto of = [](const std::string &format, const std::string &type) {
    return errorsOfOp("%a: " + type, "%0:2 = \"graph.quantize\"(%a) {format = \"" +
                                         format + "\"} : (" + type +
                                         ") -> (tensor<1xi8>, tensor<1xf32>)");
  };
  EXPECT_ERROR(of("int3", "tensor<64xf32>"),
               "format of 'graph.quantize' is 'int3', expected one of fp32, bf16, fp16");
  EXPECT_ERROR(of("mxfp8", "tensor<33xf32>"),
               "'graph.quantize' stores [33] as mxfp8, expected whole blocks");
}

} // namespace
} // namespace sluice::graph
