// Reductions and running sums: values, errors and gradients.
#include "tests/ir/GradientCheck.h"

namespace sluice::graph {
namespace {

using List = std::vector<int64_t>;

Build reduce(const char *kind, List axes, bool keep = false) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ReduceOp>(b.getUnknownLoc(), x[0], kind, axes, keep);
  };
}
Build argmax(int64_t axis, bool minimum = false, bool last = false, bool keep = false) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ArgMaxOp>(b.getUnknownLoc(), x[0], axis, minimum, last, keep);
  };
}
Build cumsum(int64_t axis, bool exclusive = false, bool reverse = false) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<CumSumOp>(b.getUnknownLoc(), x[0], axis, exclusive, reverse);
  };
}

// --- values

TEST(Reduce, Values) {
  HostTensor x = real({2, 3}, {1, -2, 3, 4, 5, -6});
  expectReals(run(reduce("sum", {1}), {x})[0], {2, 3});
  expectReals(run(reduce("sum", {0}), {x})[0], {5, 3, -3});
  expectReals(run(reduce("max", {1}), {x})[0], {3, 5});
  expectReals(run(reduce("min", {0, 1}), {x})[0], {-6});
  expectReals(run(reduce("prod", {1}), {x})[0], {-6, -120});
  HostTensor kept = run(reduce("sum", {0}, true), {x})[0];
  EXPECT_EQ(kept.shape, (Shape{1, 3}));
}

TEST(Reduce, OverNoElements) {
  HostTensor x = uniform({2, 0});
  expectReals(run(reduce("sum", {1}), {x})[0], {0, 0});
  expectReals(run(reduce("prod", {1}), {x})[0], {1, 1});
  expectReals(run(reduce("max", {1}), {x})[0], {-INFINITY, -INFINITY});
  expectReals(run(reduce("min", {1}), {x})[0], {INFINITY, INFINITY});
  EXPECT_EQ(run(reduce("sum", {0}), {x})[0].size(), 0);
}

TEST(Reduce, NanIsKept) {
  for (HostTensor x :
       {real({3}, {1, NAN, 2}), real({3}, {NAN, 1, 2}), real({3}, {1, 2, NAN})})
    for (const char *kind : {"max", "min", "sum"})
      expectReals(run(reduce(kind, {0}), {x})[0], {NAN});
}

TEST(Reduce, Integers) {
  HostTensor x = integer({3}, {100, 100, -3}, 8);
  EXPECT_EQ(run(reduce("sum", {0}), {x})[0].integers, (List{-59}));
  EXPECT_EQ(run(reduce("max", {0}), {x})[0].integers, (List{100}));
  EXPECT_EQ(run(reduce("prod", {0}), {integer({3}, {2, 3, -4})})[0].integers,
            (List{-24}));
  EXPECT_EQ(run(reduce("min", {0}), {integer({0}, {})})[0].integers,
            (List{std::numeric_limits<int64_t>::max()}));
}

TEST(Reduce, ArgMaxTakesFirstOrLastOfEquals) {
  HostTensor x = real({2, 4}, {1, 3, 3, 0, -1, -1, -5, -5});
  EXPECT_EQ(run(argmax(1), {x})[0].integers, (List{1, 0}));
  EXPECT_EQ(run(argmax(1, false, true), {x})[0].integers, (List{2, 1}));
  EXPECT_EQ(run(argmax(1, true), {x})[0].integers, (List{3, 2}));
  EXPECT_EQ(run(argmax(1, true, true), {x})[0].integers, (List{3, 3}));
  HostTensor kept = run(argmax(0, false, false, true), {x})[0];
  EXPECT_EQ(kept.shape, (Shape{1, 4}));
  EXPECT_EQ(kept.integers, (List{0, 0, 0, 0}));
  EXPECT_EQ(run(argmax(0), {real({3}, {1, NAN, 5})})[0].integers, (List{1}));
}

TEST(Reduce, CumSum) {
  HostTensor x = real({2, 3}, {1, 2, 3, 10, 20, 30});
  expectReals(run(cumsum(1), {x})[0], {1, 3, 6, 10, 30, 60});
  expectReals(run(cumsum(1, true), {x})[0], {0, 1, 3, 0, 10, 30});
  expectReals(run(cumsum(1, false, true), {x})[0], {6, 5, 3, 60, 50, 30});
  expectReals(run(cumsum(1, true, true), {x})[0], {5, 3, 0, 50, 30, 0});
  expectReals(run(cumsum(0), {x})[0], {1, 2, 3, 11, 22, 33});
}

// --- errors

TEST(Reduce, Errors) {
  auto errors = [](const char *attributes) {
    return errorsOfOp("%x: tensor<2x3xf32>",
                      std::string("%y = graph.reduce %x {") + attributes +
                          "} : (tensor<2x3xf32>) -> tensor<2xf32>");
  };
  EXPECT_ERROR(errors("kind = \"mean\", axes = array<i64: 1>"),
               "'kind' of 'graph.reduce' is 'mean', expected sum, max, min or prod");
  EXPECT_ERROR(
      errors("kind = \"sum\", axes = array<i64: 2>"),
      "entry 0 of 'axes' of 'graph.reduce' is 2, but the operand has 2 dimensions");
  EXPECT_ERROR(errors("kind = \"sum\", axes = array<i64: 1, 0>"),
               "'axes' of 'graph.reduce' is [1, 0], expected it sorted");
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x0xf32>",
                          "%y = graph.argmax %x {axis = 1 : i64} : "
                          "(tensor<2x0xf32>) -> tensor<2xi64>"),
               "operand 0 of 'graph.argmax' has no elements in dimension 1");
  EXPECT_ERROR(errorsOfOp("%x: tensor<2xf32>", "%y = graph.cumsum %x {axis = 1 : i64} : "
                                               "(tensor<2xf32>) -> tensor<2xf32>"),
               "'axis' of 'graph.cumsum' is 1, expected 0 to 0");
}

// --- gradients

TEST(Reduce, Gradients) {
  for (const char *kind : {"sum", "max", "min", "prod"})
    for (bool keep : {false, true}) {
      SCOPED_TRACE(kind);
      checkGradient(reduce(kind, {1}, keep), {distinct({2, 3, 2})});
      checkGradient(reduce(kind, {0, 2}, keep), {distinct({2, 3, 2})});
      checkGradient(reduce(kind, {0}, keep), {distinct({1})});
      checkGradient(reduce(kind, {1}, keep), {distinct({2, 0})});
      checkGradient(reduce(kind, {0}, keep), {distinct({2, 0})});
    }
}

TEST(Reduce, ProductGradientWithZeros) {
  GradientCheckOptions options;
  options.step = 1e-4; // a product is linear in each element
  checkGradient(reduce("prod", {1}), {real({3, 3}, {2, 0, 3, 0, 0, 4, 5, 6, 7})},
                options);
}

TEST(Reduce, TiesShareEvenly) {
  HostTensor one = real({1}, {1});
  expectReals(gradientsOf(reduce("max", {0}), {real({4}, {3, 1, 3, 3})}, {&one})[0],
              {1.0 / 3, 0, 1.0 / 3, 1.0 / 3});
  expectReals(gradientsOf(reduce("min", {0}), {real({4}, {3, 1, 1, 3})}, {&one})[0],
              {0, 0.5, 0.5, 0});
}

TEST(Reduce, CumSumGradients) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      checkGradient(cumsum(1, exclusive, reverse), {uniform({2, 4, 3})});
      checkGradient(cumsum(0, exclusive, reverse), {uniform({1})});
    }
  checkGradient(cumsum(1), {uniform({2, 0})});
}

} // namespace
} // namespace sluice::graph
