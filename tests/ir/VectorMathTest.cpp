// The vector code of the real functions against libm in double, over bit patterns of all
// kinds.
#include "tests/ir/VectorJit.h"

#include <bit>
#include <cstring>

namespace sluice::graph {
namespace {

template <class Op> Build unary() {
  return [](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0]);
  };
}
template <class Op> Build binary() {
  return [](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0], x[1]);
  };
}

mlir::Type f32() { return mlir::Float32Type::get(&context()); }

/// Every 1021st bit pattern: all signs and exponents, NaN, infinities and denormals.
const std::vector<float> &allKinds() {
  static const std::vector<float> values = [] {
    std::vector<float> result;
    for (uint64_t bits = 0; bits < (1ull << 32); bits += 1021)
      result.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    for (float special : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN})
      result.push_back(special);
    result.resize(result.size() / 16 * 16);
    return result;
  }();
  return values;
}

/// Evenly spaced in [low, high].
std::vector<float> grid(double low, double high, int64_t count) {
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<float>(low + (high - low) * i / count));
  return result;
}

double ulpOf(double reference) {
  const double size = std::max(std::fabs(reference), 0x1p-126);
  return std::ldexp(1.0, std::ilogb(size) - 23);
}

/// Error in units of the last place of the reference; 0 where both are the same special
/// value.
double errorUlps(float y, double reference) {
  if (std::isnan(reference) || std::isnan(y))
    return std::isnan(reference) && std::isnan(y) ? 0 : 1e30;
  const float rounded = static_cast<float>(reference);
  if (std::isinf(y) || std::isinf(rounded))
    return y == rounded ? 0 : 1e30;
  return std::fabs(y - reference) / ulpOf(reference);
}

template <class Reference>
void expectUlps(const Build &build, const std::vector<float> &x, double bound,
                Reference reference) {
  VectorKernel kernel(build, {f32()});
  std::vector<float> y(x.size());
  kernel.run({x.data()}, y.data(), x.size());
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = errorUlps(y[i], reference(static_cast<double>(x[i])));
    if (error > worst)
      worst = error, at = i;
  }
  EXPECT_LE(worst, bound) << "at " << x[at] << " got " << y[at] << ", expected "
                          << reference(static_cast<double>(x[at]));
}

double flushed(double y) { return y < 0x1p-126 ? 0 : y; }

TEST(VectorMath, Exp) {
  auto reference = [](double x) { return flushed(std::exp(x)); };
  expectUlps(unary<ExpOp>(), allKinds(), 0.9, reference);
  expectUlps(unary<ExpOp>(), grid(-87.3, 88.7, 1 << 20), 0.9, reference);
}

TEST(VectorMath, ExpAtItsLimits) {
  VectorKernel kernel(unary<ExpOp>(), {f32()});
  std::vector<float> x(16, 0), y(16);
  x = {88.72283f, 88.7229f, 89,    1e30f,  -87.3f,   -87.4f,    -100, -104,
       -1e30f,    0,        -0.0f, 1e-30f, INFINITY, -INFINITY, NAN,  1e-45f};
  kernel.run({x.data()}, y.data(), 16);
  EXPECT_TRUE(std::isfinite(y[0]));
  for (int i : {1, 2, 3, 12})
    EXPECT_EQ(y[i], INFINITY) << x[i];
  EXPECT_GT(y[4], 0);
  for (int i : {5, 6, 7, 8, 13})
    EXPECT_EQ(y[i], 0) << x[i];
  for (int i : {9, 10, 11, 15})
    EXPECT_EQ(y[i], 1) << x[i];
  EXPECT_TRUE(std::isnan(y[14]));
}

TEST(VectorMath, Log) {
  auto reference = [](double x) { return std::log(x); };
  expectUlps(unary<LogOp>(), allKinds(), 1.0, reference);
  expectUlps(unary<LogOp>(), grid(0.5, 2, 1 << 20), 1.0, reference);
}

TEST(VectorMath, Tanh) {
  auto reference = [](double x) { return std::tanh(x); };
  expectUlps(unary<TanhOp>(), allKinds(), 4.6, reference);
  expectUlps(unary<TanhOp>(), grid(-10, 10, 1 << 20), 4.6, reference);
}

TEST(VectorMath, Sigmoid) {
  // 1 / (1 + e^-x) is 0 where e^-x is infinite in f32.
  auto reference = [](double x) {
    return std::isinf(static_cast<float>(std::exp(-x))) ? 0.0 : 1 / (1 + std::exp(-x));
  };
  expectUlps(unary<SigmoidOp>(), allKinds(), 2.5, reference);
  expectUlps(unary<SigmoidOp>(), grid(-80, 20, 1 << 20), 2.5, reference);
}

TEST(VectorMath, Erf) {
  auto reference = [](double x) { return std::erf(x); };
  expectUlps(unary<ErfOp>(), allKinds(), 7, reference);
  expectUlps(unary<ErfOp>(), grid(-4.5, 4.5, 1 << 20), 7, reference);
}

std::vector<float> boundedBy(double limit) {
  std::vector<float> result;
  for (float x : allKinds())
    if (!(std::fabs(x) > limit) || std::isinf(x))
      result.push_back(x);
  result.resize(result.size() / 16 * 16);
  return result;
}

TEST(VectorMath, SinAndCos) {
  for (const std::vector<float> &x : {boundedBy(0x1p51), grid(-30, 30, 1 << 20)}) {
    expectUlps(unary<SinOp>(), x, 1.5, [](double v) { return std::sin(v); });
    expectUlps(unary<CosOp>(), x, 1.5, [](double v) { return std::cos(v); });
  }
}

TEST(VectorMath, Atan) {
  auto reference = [](double x) { return std::atan(x); };
  expectUlps(unary<AtanOp>(), allKinds(), 3, reference);
  expectUlps(unary<AtanOp>(), grid(-5, 5, 1 << 20), 3, reference);
}

TEST(VectorMath, Softplus) {
  // The tail is e^x, which is 0 below 2^-126.
  auto reference = [](double x) {
    return std::max(x, 0.0) + std::log1p(flushed(std::exp(-std::fabs(x))));
  };
  expectUlps(unary<SoftplusOp>(), allKinds(), 3, reference);
  expectUlps(unary<SoftplusOp>(), grid(-20, 20, 1 << 20), 3, reference);
}

TEST(VectorMath, RootsAreRounded) {
  expectUlps(unary<SqrtOp>(), allKinds(), 0.5, [](double x) { return std::sqrt(x); });
  expectUlps(unary<RsqrtOp>(), allKinds(), 1.5,
             [](double x) { return 1 / std::sqrt(x); });
}

TEST(VectorMath, RoundingIsExact) {
  expectUlps(unary<FloorOp>(), allKinds(), 0, [](double x) { return std::floor(x); });
  expectUlps(unary<CeilOp>(), allKinds(), 0, [](double x) { return std::ceil(x); });
  expectUlps(unary<RoundOp>(), allKinds(), 0, [](double x) { return std::nearbyint(x); });
}

TEST(VectorMath, SimpleFunctionsAreExact) {
  expectUlps(unary<NegOp>(), allKinds(), 0, [](double x) { return -x; });
  expectUlps(unary<AbsOp>(), allKinds(), 0, [](double x) { return std::fabs(x); });
  expectUlps(unary<SignOp>(), allKinds(), 0, [](double x) {
    return x > 0 ? 1.0 : x < 0 ? -1.0 : x;
  });
  expectUlps(unary<ReluOp>(), allKinds(), 0, [](double x) { return x <= 0 ? 0.0 : x; });
}

// --- gelu and silu: absolute errors, since the exact function cancels

template <class Reference>
void expectAbsolute(const Build &build, double bound, Reference reference) {
  VectorKernel kernel(build, {f32()});
  std::vector<float> x = grid(-30, 30, 1 << 20), y(x.size());
  kernel.run({x.data()}, y.data(), x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::fabs(y[i] - reference(x[i])) /
                                std::max(1.0, std::fabs(double(x[i]))));
  EXPECT_LE(worst, bound);
}

TEST(VectorMath, Gelu) {
  expectAbsolute(unary<GeluOp>(), 3e-7,
                 [](double x) { return 0.5 * x * (1 + std::erf(x * M_SQRT1_2)); });
}

TEST(VectorMath, GeluTanhForm) {
  Build build = [](mlir::OpBuilder &b,
                   llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<GeluOp>(b.getUnknownLoc(), x[0], /*tanh_form=*/true);
  };
  expectAbsolute(build, 3e-7, [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
  });
}

TEST(VectorMath, GeluVanishesFarToTheLeft) {
  std::vector<float> x(16, -1e10f), y(16, 1);
  for (bool tanhForm : {false, true}) {
    Build build = [&](mlir::OpBuilder &b,
                      llvm::ArrayRef<mlir::Value> v) -> mlir::Operation * {
      return b.create<GeluOp>(b.getUnknownLoc(), v[0], tanhForm);
    };
    VectorKernel(build, {f32()}).run({x.data()}, y.data(), 16);
    EXPECT_EQ(y[0], 0);
  }
}

TEST(VectorMath, Silu) {
  expectAbsolute(unary<SiluOp>(), 2e-7, [](double x) { return x / (1 + std::exp(-x)); });
}

// --- two operands

/// Pairs from random bit patterns and from a table of special values.
struct Pairs {
  std::vector<float> a, b;
};
Pairs pairs(bool moderate) {
  Pairs p;
  std::mt19937 generator(7);
  const float specials[] = {0.0f,     -0.0f,     1,      -1,         2,
                            -2,       3,         -3,     0.5f,       -0.5f,
                            1e-40f,   1e38f,     -1e38f, 16777216,   16777215,
                            INFINITY, -INFINITY, NAN,    1.0000001f, 0.9999999f};
  for (float a : specials)
    for (float b : specials)
      p.a.push_back(a), p.b.push_back(b);
  for (int i = 0; i < (1 << 20); ++i) {
    if (moderate) {
      p.a.push_back(std::exp2(20 * (generator() * 0x1p-32 - 0.5)));
      p.b.push_back(12 * (generator() * 0x1p-32 - 0.5));
    } else {
      p.a.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
      p.b.push_back(std::bit_cast<float>(static_cast<uint32_t>(generator())));
    }
  }
  p.a.resize(p.a.size() / 16 * 16);
  p.b.resize(p.a.size());
  return p;
}

template <class Reference>
void expectUlps(const Build &build, const Pairs &p, double bound, Reference reference) {
  VectorKernel kernel(build, {f32(), f32()});
  std::vector<float> y(p.a.size());
  kernel.run({p.a.data(), p.b.data()}, y.data(), y.size());
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double error = errorUlps(y[i], reference(p.a[i], p.b[i]));
    if (error > worst)
      worst = error, at = i;
  }
  EXPECT_LE(worst, bound) << "at " << p.a[at] << ", " << p.b[at] << " got " << y[at]
                          << ", expected " << reference(p.a[at], p.b[at]);
}

TEST(VectorMath, Pow) {
  auto reference = [](double a, double b) { return std::pow(a, b); };
  expectUlps(binary<PowOp>(), pairs(true), 0.6, reference);
  expectUlps(binary<PowOp>(), pairs(false), 0.6, reference);
}

double floorMod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<float>(r + b) : r;
}

TEST(VectorMath, ModIsExact) {
  for (bool moderate : {true, false}) {
    Pairs p = pairs(moderate);
    for (size_t i = 0; i < p.a.size();
         ++i) // beyond, the quotient has more bits than a double
      if (std::fabs(double(p.a[i]) / p.b[i]) >= 0x1p53)
        p.a[i] = 1, p.b[i] = 1;
    for (bool fmod : {false, true}) {
      Build build = [&](mlir::OpBuilder &b,
                        llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
        return b.create<ModOp>(b.getUnknownLoc(), x[0], x[1], fmod);
      };
      expectUlps(build, p, 0, [&](double a, double b) {
        return fmod ? std::fmod(a, b) : floorMod(a, b);
      });
    }
  }
}

TEST(VectorMath, ArithmeticIsRoundedOnce) {
  Pairs p = pairs(false);
  expectUlps(binary<AddOp>(), p, 0.5, [](double a, double b) { return a + b; });
  expectUlps(binary<SubOp>(), p, 0.5, [](double a, double b) { return a - b; });
  expectUlps(binary<MulOp>(), p, 0.5, [](double a, double b) { return a * b; });
  expectUlps(binary<DivOp>(), p, 0.5, [](double a, double b) { return a / b; });
  auto larger = [](double a, double b) {
    return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
  };
  auto smaller = [](double a, double b) {
    return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
  };
  expectUlps(binary<MaxOp>(), p, 0, larger);
  expectUlps(binary<MinOp>(), p, 0, smaller);
}

// --- the bits do not depend on the processor

/// Equal words, NaNs of any payload counting as equal.
void expectSameBits(const std::vector<float> &a, const std::vector<float> &b,
                    const char *name) {
  size_t differing = 0;
  for (size_t i = 0; i < a.size(); ++i)
    differing +=
        !(std::isnan(a[i]) && std::isnan(b[i])) && std::memcmp(&a[i], &b[i], 4) != 0;
  EXPECT_EQ(differing, 0u) << name;
}

TEST(VectorMath, HostAndHaswellAgreeBitForBit) {
  const std::vector<float> &x = allKinds();
  const std::vector<std::pair<const char *, Build>> functions = {
      {"exp", unary<ExpOp>()},     {"log", unary<LogOp>()},
      {"tanh", unary<TanhOp>()},   {"erf", unary<ErfOp>()},
      {"sin", unary<SinOp>()},     {"cos", unary<CosOp>()},
      {"atan", unary<AtanOp>()},   {"gelu", unary<GeluOp>()},
      {"silu", unary<SiluOp>()},   {"softplus", unary<SoftplusOp>()},
      {"round", unary<RoundOp>()}, {"rsqrt", unary<RsqrtOp>()}};
  std::vector<float> here(x.size()), there(x.size());
  for (const auto &[name, build] : functions) {
    VectorKernel(build, {f32()}).run({x.data()}, here.data(), x.size());
    VectorKernel(build, {f32()}, "haswell").run({x.data()}, there.data(), x.size());
    expectSameBits(here, there, name);
  }
  Pairs p = pairs(false);
  here.resize(p.a.size()), there.resize(p.a.size());
  VectorKernel(binary<PowOp>(), {f32(), f32()})
      .run({p.a.data(), p.b.data()}, here.data(), here.size());
  VectorKernel(binary<PowOp>(), {f32(), f32()}, "haswell")
      .run({p.a.data(), p.b.data()}, there.data(), there.size());
  expectSameBits(here, there, "pow");
}

} // namespace
} // namespace sluice::graph
