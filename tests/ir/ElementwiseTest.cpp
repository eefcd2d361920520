// Elementwise operations: values, errors and gradients.
#include "tests/ir/GradientCheck.h"

#include <gtest/gtest-spi.h>

namespace sluice::graph {
namespace {

template <class Op, class... Args> Build elementwise(Args... args) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    if constexpr (std::is_same_v<Op, SelectOp>)
      return b.create<Op>(b.getUnknownLoc(), x[0], x[1], x[2]);
    else if constexpr (requires { &Op::getB; })
      return b.create<Op>(b.getUnknownLoc(), x[0], x[1], args...);
    else
      return b.create<Op>(b.getUnknownLoc(), x[0], args...);
  };
}

constexpr double inf = INFINITY, nan = NAN;

// --- values

TEST(Elementwise, UnaryValues) {
  HostTensor x = real({5}, {-2.5, -0.5, 0, 0.5, 2.5});
  expectReals(run(elementwise<NegOp>(), {x})[0], {2.5, 0.5, 0, -0.5, -2.5});
  expectReals(run(elementwise<AbsOp>(), {x})[0], {2.5, 0.5, 0, 0.5, 2.5});
  expectReals(run(elementwise<SignOp>(), {x})[0], {-1, -1, 0, 1, 1});
  expectReals(run(elementwise<FloorOp>(), {x})[0], {-3, -1, 0, 0, 2});
  expectReals(run(elementwise<CeilOp>(), {x})[0], {-2, 0, 0, 1, 3});
  expectReals(run(elementwise<RoundOp>(), {x})[0], {-2, 0, 0, 0, 2});
  expectReals(run(elementwise<ReluOp>(), {x})[0], {0, 0, 0, 0.5, 2.5});
}

TEST(Elementwise, TranscendentalValues) {
  HostTensor x = real({3}, {-1, 0, 2});
  expectReals(run(elementwise<ExpOp>(), {x})[0],
              {0.36787944117144233, 1, 7.38905609893065});
  expectReals(run(elementwise<TanhOp>(), {x})[0],
              {-0.7615941559557649, 0, 0.9640275800758169});
  expectReals(run(elementwise<SigmoidOp>(), {x})[0],
              {0.2689414213699951, 0.5, 0.8807970779778823});
  expectReals(run(elementwise<ErfOp>(), {x})[0],
              {-0.8427007929497149, 0, 0.9953222650189527});
  expectReals(run(elementwise<SinOp>(), {x})[0],
              {-0.8414709848078965, 0, 0.9092974268256817});
  expectReals(run(elementwise<CosOp>(), {x})[0],
              {0.5403023058681398, 1, -0.4161468365471424});
  expectReals(run(elementwise<AtanOp>(), {x})[0],
              {-0.7853981633974483, 0, 1.1071487177940904});
  expectReals(run(elementwise<GeluOp>(), {x})[0],
              {-0.15865525393145707, 0, 1.9544997361036416});
  expectReals(run(elementwise<GeluOp>(true), {x})[0],
              {-0.15880800939172324, 0, 1.954597694087775});
  expectReals(run(elementwise<SiluOp>(), {x})[0],
              {-0.2689414213699951, 0, 1.7615941559557646});
  expectReals(run(elementwise<SoftplusOp>(), {x})[0],
              {0.31326168751822286, 0.6931471805599453, 2.1269280110429727});
  HostTensor positive = real({3}, {0.25, 1, 4});
  expectReals(run(elementwise<LogOp>(), {positive})[0],
              {-1.3862943611198906, 0, 1.3862943611198906});
  expectReals(run(elementwise<SqrtOp>(), {positive})[0], {0.5, 1, 2});
  expectReals(run(elementwise<RsqrtOp>(), {positive})[0], {2, 1, 0.5});
}

TEST(Elementwise, ExtremeArguments) {
  expectReals(run(elementwise<SoftplusOp>(), {real({4}, {-1000, 1000, -40, nan})})[0],
              {0, 1000, std::exp(-40), nan}, 1e-30);
  expectReals(run(elementwise<ExpOp>(), {real({3}, {-88, 1000, nan})})[0], {0, inf, nan});
  expectReals(run(elementwise<ReluOp>(), {real({3}, {-inf, inf, nan})})[0],
              {0, inf, nan});
  expectReals(run(elementwise<LogOp>(), {real({3}, {0, -1, inf})})[0], {-inf, nan, inf});
}

TEST(Elementwise, BinaryValues) {
  HostTensor a = real({4}, {1, -2, 5, nan}), b = real({4}, {3, 4, -2, 1});
  expectReals(run(elementwise<AddOp>(), {a, b})[0], {4, 2, 3, nan});
  expectReals(run(elementwise<SubOp>(), {a, b})[0], {-2, -6, 7, nan});
  expectReals(run(elementwise<MulOp>(), {a, b})[0], {3, -8, -10, nan});
  expectReals(run(elementwise<DivOp>(), {a, b})[0], {1.0 / 3, -0.5, -2.5, nan});
  expectReals(run(elementwise<MaxOp>(), {a, b})[0], {3, 4, 5, nan});
  expectReals(run(elementwise<MinOp>(), {a, b})[0], {1, -2, -2, nan});
  expectReals(run(elementwise<PowOp>(), {a, b})[0], {1, 16, 0.04, nan});
  expectReals(run(elementwise<ModOp>(), {a, b})[0], {1, 2, -1, nan});
  expectReals(run(elementwise<ModOp>(true), {a, b})[0], {1, -2, 1, nan});
}

TEST(Elementwise, IntegersWrap) {
  const int64_t top = std::numeric_limits<int64_t>::max();
  HostTensor a = integer({3}, {top, -top - 1, 7}), b = integer({3}, {1, -1, -2});
  EXPECT_EQ(run(elementwise<AddOp>(), {a, b})[0].integers,
            (std::vector<int64_t>{-top - 1, top, 5}));
  EXPECT_EQ(run(elementwise<DivOp>(), {a, b})[0].integers,
            (std::vector<int64_t>{top, -top - 1, -3}));
  EXPECT_EQ(run(elementwise<ModOp>(), {a, b})[0].integers,
            (std::vector<int64_t>{0, 0, -1}));
  HostTensor narrow = integer({2}, {127, -128}, 8), one = integer({2}, {1, -1}, 8);
  EXPECT_EQ(run(elementwise<AddOp>(), {narrow, one})[0].integers,
            (std::vector<int64_t>{-128, 127}));
}

TEST(Elementwise, LogicAndCompare) {
  HostTensor a = integer({4}, {0, 0, 1, 1}, 1), b = integer({4}, {0, 1, 0, 1}, 1);
  using Bits = std::vector<int64_t>;
  EXPECT_EQ(run(elementwise<AndOp>(), {a, b})[0].integers, (Bits{0, 0, 0, 1}));
  EXPECT_EQ(run(elementwise<OrOp>(), {a, b})[0].integers, (Bits{0, 1, 1, 1}));
  EXPECT_EQ(run(elementwise<XorOp>(), {a, b})[0].integers, (Bits{0, 1, 1, 0}));
  EXPECT_EQ(run(elementwise<NotOp>(), {a})[0].integers, (Bits{1, 1, 0, 0}));
  HostTensor x = real({3}, {1, 2, nan}), y = real({3}, {2, 2, nan});
  EXPECT_EQ(run(elementwise<CompareOp>("lt"), {x, y})[0].integers, (Bits{1, 0, 0}));
  EXPECT_EQ(run(elementwise<CompareOp>("le"), {x, y})[0].integers, (Bits{1, 1, 0}));
  EXPECT_EQ(run(elementwise<CompareOp>("ne"), {x, y})[0].integers, (Bits{1, 0, 1}));
  EXPECT_EQ(run(elementwise<CompareOp>("eq"), {x, y})[0].integers, (Bits{0, 1, 0}));
}

TEST(Elementwise, SelectTakesByCondition) {
  HostTensor condition = integer({3}, {1, 0, 1}, 1);
  expectReals(run(elementwise<SelectOp>(),
                  {condition, real({3}, {1, 2, 3}), real({3}, {4, 5, 6})})[0],
              {1, 5, 3});
}

TEST(Elementwise, CastSaturatesAndTruncates) {
  mlir::Type i8 = mlir::IntegerType::get(&context(), 8),
             i1 = mlir::IntegerType::get(&context(), 1);
  HostTensor x = real({6}, {1.9, -1.9, 300, -300, nan, 0});
  EXPECT_EQ(run(elementwise<CastOp>(i8), {x})[0].integers,
            (std::vector<int64_t>{1, -1, 127, -128, 0, 0}));
  EXPECT_EQ(run(elementwise<CastOp>(i1), {x})[0].integers,
            (std::vector<int64_t>{1, 1, 1, 1, 1, 0}));
  mlir::Type bf16 = mlir::BFloat16Type::get(&context());
  expectReals(run(elementwise<CastOp>(bf16), {real({2}, {1.00390625, 1.01171875})})[0],
              {1, 1.015625});
}

// P9: what f16 makes of small and large numbers, and of small ones scaled.
TEST(Elementwise, CastsToHalfAsCaseP9) {
  mlir::Type f16 = mlir::Float16Type::get(&context());
  HostTensor y =
      run(elementwise<CastOp>(f16), {real({3}, {1e-8, 70000, 1e-8 * 65536})})[0];
  EXPECT_EQ(y.reals[0], 0);
  EXPECT_TRUE(std::isinf(y.reals[1]));
  EXPECT_NEAR(y.reals[2], 6.5517e-4, 5e-9);
}

TEST(Elementwise, SinglePrecisionRounds) {
  HostTensor y = run(elementwise<AddOp>(), {real({1}, {1}), real({1}, {1e-9})},
                     Precision::Single)[0];
  EXPECT_EQ(y.reals[0], 1);
}

// --- errors

TEST(Elementwise, ErrorsNameOperandAndRemedy) {
  std::string shapes = errorsOfOp(
      "%a: tensor<2x3xf32>, %b: tensor<3xf32>",
      "%y = graph.add %a, %b : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>");
  EXPECT_ERROR(
      shapes,
      "operand 1 of 'graph.add' has type 'tensor<3xf32>', expected 'tensor<2x3xf32>' "
      "(type of operand 0); insert 'graph.broadcast'");
  std::string types = errorsOfOp(
      "%a: tensor<3xf32>, %b: tensor<3xi64>",
      "%y = graph.mul %a, %b : (tensor<3xf32>, tensor<3xi64>) -> tensor<3xf32>");
  EXPECT_ERROR(types, "insert 'graph.cast'");
  std::string domain = errorsOfOp("%a: tensor<3xi64>",
                                  "%y = graph.exp %a : (tensor<3xi64>) -> tensor<3xi64>");
  EXPECT_ERROR(
      domain, "operand 0 of 'graph.exp' has element type 'i64', expected floating point");
  std::string logic = errorsOfOp("%a: tensor<3xf32>",
                                 "%y = graph.not %a : (tensor<3xf32>) -> tensor<3xf32>");
  EXPECT_ERROR(logic, "expected integers or i1");
  std::string result = errorsOfOp("%a: tensor<3xf32>",
                                  "%y = graph.exp %a : (tensor<3xf32>) -> tensor<4xf32>");
  EXPECT_ERROR(result, "tensor<4xf32>");
}

TEST(Elementwise, ErrorsOfCompareSelectCast) {
  std::string predicate = errorsOfOp("%a: tensor<3xf32>",
                                     "%y = graph.compare %a, %a {predicate = \"less\"} : "
                                     "(tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>");
  EXPECT_ERROR(predicate, "has predicate 'less', expected eq, ne, lt, le, gt or ge");
  std::string select =
      errorsOfOp("%c: tensor<2xi1>, %a: tensor<3xf32>",
                 "%y = graph.select %c, %a, %a : (tensor<2xi1>, tensor<3xf32>, "
                 "tensor<3xf32>) -> tensor<3xf32>");
  EXPECT_ERROR(
      select,
      "operand 0 of 'graph.select' has type 'tensor<2xi1>', expected 'tensor<3xi1>'");
  std::string cast =
      errorsOfOp("%a: tensor<3xf32>", "%y = graph.cast %a {element_type = index} : "
                                      "(tensor<3xf32>) -> tensor<3xi64>");
  EXPECT_ERROR(cast, "'element_type' of 'graph.cast' is 'index'");
}

// --- gradients

TEST(Elementwise, UnaryGradients) {
  const std::vector<std::pair<const char *, Build>> anywhere = {
      {"neg", elementwise<NegOp>()},         {"abs", elementwise<AbsOp>()},
      {"sign", elementwise<SignOp>()},       {"exp", elementwise<ExpOp>()},
      {"sin", elementwise<SinOp>()},         {"cos", elementwise<CosOp>()},
      {"atan", elementwise<AtanOp>()},       {"tanh", elementwise<TanhOp>()},
      {"sigmoid", elementwise<SigmoidOp>()}, {"erf", elementwise<ErfOp>()},
      {"relu", elementwise<ReluOp>()},       {"floor", elementwise<FloorOp>()},
      {"ceil", elementwise<CeilOp>()},       {"round", elementwise<RoundOp>()},
      {"gelu", elementwise<GeluOp>()},       {"gelu tanh", elementwise<GeluOp>(true)},
      {"silu", elementwise<SiluOp>()},       {"softplus", elementwise<SoftplusOp>()}};
  for (const auto &[name, build] : anywhere) {
    SCOPED_TRACE(name);
    for (const Shape &shape : {Shape{3, 5}, Shape{}, Shape{1, 1}, Shape{2, 0}})
      checkGradient(build, {uniform(shape, -3, 3)});
  }
  for (const Build &build :
       {elementwise<LogOp>(), elementwise<SqrtOp>(), elementwise<RsqrtOp>()})
    checkGradient(build, {uniform({4, 3}, 0.2, 3)});
}

TEST(Elementwise, StraightThroughRounding) {
  HostTensor x = real({3}, {-1.2, 0.5, 2.7}), d = real({3}, {1, 2, 3});
  expectReals(run(elementwise<RoundOp>(true), {x})[0], {-1, 0, 3});
  expectReals(gradientsOf(elementwise<RoundOp>(true), {x}, {&d})[0], {1, 2, 3});
  expectReals(gradientsOf(elementwise<RoundOp>(), {x}, {&d})[0], {0, 0, 0});
}

TEST(Elementwise, BinaryGradients) {
  for (const Build &build :
       {elementwise<AddOp>(), elementwise<SubOp>(), elementwise<MulOp>(),
        elementwise<DivOp>(), elementwise<MaxOp>(), elementwise<MinOp>(),
        elementwise<ModOp>(), elementwise<ModOp>(true)})
    for (const Shape &shape : {Shape{3, 4}, Shape{}, Shape{0, 3}})
      checkGradient(build, {uniform(shape, -3, 3, 1), uniform(shape, 0.3, 2, 2)});
  checkGradient(elementwise<PowOp>(),
                {uniform({3, 4}, 0.2, 3, 1), uniform({3, 4}, -2, 2, 2)});
}

TEST(Elementwise, SameOperandTwice) {
  Build square = [](mlir::OpBuilder &b,
                    llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<MulOp>(b.getUnknownLoc(), x[0], x[0]);
  };
  checkGradient(square, {uniform({3}, -2, 2)});
}

TEST(Elementwise, PowOfConstantExponents) {
  for (double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 4.0}) {
    Build build = [=](mlir::OpBuilder &b,
                      llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
      auto splat =
          mlir::DenseElementsAttr::get(tensorType(x[0]), static_cast<float>(exponent));
      mlir::Value e = b.create<ConstantOp>(b.getUnknownLoc(), splat);
      return b.create<PowOp>(b.getUnknownLoc(), x[0], e);
    };
    SCOPED_TRACE(exponent);
    checkGradient(build, {uniform({6}, 0.3, 2)});
  }
}

TEST(Elementwise, SelectAndCastGradients) {
  checkGradient(
      elementwise<SelectOp>(),
      {integer({4}, {1, 0, 0, 1}, 1), uniform({4}, -1, 1, 1), uniform({4}, -1, 1, 2)});
  mlir::Type f64 = mlir::Float64Type::get(&context());
  checkGradient(elementwise<CastOp>(f64), {uniform({4})});
}

/// The gradients of one operation for a cotangent of ones.
std::vector<HostTensor> slopes(const Build &build,
                               const std::vector<HostTensor> &inputs) {
  HostTensor ones =
      real(inputs.back().shape, std::vector<double>(inputs.back().size(), 1));
  return gradientsOf(build, inputs, {&ones});
}

TEST(Elementwise, SubgradientsWhereNoDerivativeExists) {
  HostTensor zero = real({1}, {0});
  for (const Build &build :
       {elementwise<AbsOp>(), elementwise<SignOp>(), elementwise<ReluOp>()})
    expectReals(slopes(build, {zero})[0], {0});
  for (const Build &build : {elementwise<MaxOp>(), elementwise<MinOp>()}) {
    auto halves = slopes(build, {real({1}, {2}), real({1}, {2})});
    expectReals(halves[0], {0.5});
    expectReals(halves[1], {0.5});
  }
}

TEST(Elementwise, PowConventionsOfPyTorch) {
  // (0, 0), (0, 2), (0, -1), (-2, 3), (-2, 0.5): torch.pow(a, b).backward()
  auto d = slopes(elementwise<PowOp>(),
                  {real({5}, {0, 0, 0, -2, -2}), real({5}, {0, 2, -1, 3, 0.5})});
  expectReals(d[0], {0, 0, -inf, 12, nan});
  expectReals(d[1], {0, 0, -inf, nan, nan});
}

TEST(Elementwise, GradientCheckNoticesADifference) {
  // floor jumps at 1, its gradient is 0.
  EXPECT_NONFATAL_FAILURE(checkGradient(elementwise<FloorOp>(), {real({1}, {1})}),
                          "input 0 element 0");
}

TEST(Elementwise, IntegersHaveNoGradient) {
  Build build = elementwise<AddOp>();
  std::vector<HostTensor> inputs = {integer({2}, {1, 2}), integer({2}, {3, 4})};
  for (const HostTensor &gradient : gradientsOf(build, inputs, {nullptr}))
    EXPECT_EQ(gradient.integers, (std::vector<int64_t>{0, 0}));
}

} // namespace
} // namespace sluice::graph
