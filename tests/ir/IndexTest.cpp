// Reading and writing by index: values, errors and gradients.
#include "tests/ir/GradientCheck.h"

namespace sluice::graph {
namespace {

using List = std::vector<int64_t>;

Build gather(int64_t axis) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<GatherOp>(b.getUnknownLoc(), x[0], x[1], axis);
  };
}
Build scatterAdd(int64_t size, int64_t axis) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ScatterAddOp>(b.getUnknownLoc(), x[0], x[1], size, axis);
  };
}
Build gatherElements(int64_t axis) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<GatherElementsOp>(b.getUnknownLoc(), x[0], x[1], axis);
  };
}
Build scatterElements(int64_t axis, llvm::StringRef reduction) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ScatterElementsOp>(b.getUnknownLoc(), x[0], x[1], x[2], axis,
                                       reduction);
  };
}

// --- values

TEST(Index, Iota) {
  Build iota = [](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value>) -> mlir::Operation * {
    return b.create<IotaOp>(b.getUnknownLoc(), List{2, 3}, 1);
  };
  EXPECT_EQ(run(iota, {})[0].integers, (List{0, 1, 2, 0, 1, 2}));
}

TEST(Index, GatherCountsFromTheEndAndReadsZerosOutside) {
  HostTensor x = real({3, 2}, {1, 2, 3, 4, 5, 6});
  expectReals(run(gather(0), {x, integer({3}, {2, -3, 3})})[0], {5, 6, 1, 2, 0, 0});
  HostTensor y = run(gather(1), {x, integer({1, 2}, {1, 0})})[0];
  EXPECT_EQ(y.shape, (Shape{3, 1, 2}));
  expectReals(y, {2, 1, 4, 3, 6, 5});
  HostTensor scalar = run(gather(0), {x, integer({}, {1})})[0];
  EXPECT_EQ(scalar.shape, (Shape{2}));
  EXPECT_EQ(run(gather(0), {integer({2}, {7, 8}), integer({2}, {-1, 0}, 32)})[0].integers,
            (List{8, 7}));
}

TEST(Index, ScatterAddSumsRepeatedRows) {
  HostTensor updates = real({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expectReals(run(scatterAdd(3, 0), {integer({4}, {2, 0, -1, 5}), updates})[0],
              {3, 4, 0, 0, 6, 8});
  HostTensor y =
      run(scatterAdd(2, 1), {integer({2}, {1, 1}), real({2, 2}, {1, 2, 3, 4})})[0];
  expectReals(y, {0, 3, 0, 7});
}

TEST(Index, GatherElements) {
  HostTensor x = real({2, 2}, {1, 2, 3, 4});
  expectReals(run(gatherElements(1), {x, integer({2, 2}, {0, 0, -1, 0})})[0],
              {1, 1, 4, 3});
  expectReals(run(gatherElements(0), {x, integer({1, 2}, {1, 0})})[0], {3, 2});
}

TEST(Index, ScatterElementsReplacesOrAdds) {
  HostTensor x = real({3}, {1, 2, 3}), indices = integer({3}, {1, 1, -1}),
             u = real({3}, {10, 20, 30});
  expectReals(run(scatterElements(0, "none"), {x, indices, u})[0], {1, 20, 30});
  expectReals(run(scatterElements(0, "add"), {x, indices, u})[0], {1, 32, 33});
  expectReals(run(scatterElements(0, "mul"), {x, indices, u})[0], {1, 400, 90});
  expectReals(run(scatterElements(0, "max"), {x, indices, u})[0], {1, 20, 30});
  expectReals(run(scatterElements(0, "min"), {x, indices, u})[0], {1, 2, 3});
}

// --- errors

TEST(Index, Errors) {
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<2xf32>, %i: tensor<1xi64>",
          "%y = graph.gather %x, %i {axis = 1 : i64} : (tensor<2xf32>, tensor<1xi64>) -> "
          "tensor<1xf32>"),
      "'axis' of 'graph.gather' is 1, expected 0 to 0");
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<f32>, %i: tensor<1xi64>",
          "%y = graph.gather %x, %i {axis = 0 : i64} : (tensor<f32>, tensor<1xi64>) -> "
          "tensor<1xf32>"),
      "but the operand has no dimensions");
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<2xf32>, %i: tensor<1xi1>",
          "%y = graph.gather %x, %i {axis = 0 : i64} : (tensor<2xf32>, tensor<1xi1>) -> "
          "tensor<1xf32>"),
      "operand 1 of 'graph.gather' has element type 'i1', expected integers");
  EXPECT_ERROR(
      errorsOfOp("%i: tensor<3xi64>, %u: tensor<2x4xf32>",
                 "%y = graph.scatter_add %i, %u {axis = 0 : i64, size = 5 : i64} : "
                 "(tensor<3xi64>, tensor<2x4xf32>) -> tensor<5x4xf32>"),
      "operand 1 of 'graph.scatter_add' has shape [2, 4], expected [3] from dimension 0");
  EXPECT_ERROR(
      errorsOfOp("%x: tensor<2x2xf32>, %i: tensor<2x3xi64>",
                 "%y = graph.gather_elements %x, %i {axis = 0 : i64} : (tensor<2x2xf32>, "
                 "tensor<2x3xi64>) -> tensor<2x3xf32>"),
      "operand 1 of 'graph.gather_elements' has shape [2, 3], expected at most [2, 2]");
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<2xf32>, %i: tensor<2xi64>, %u: tensor<3xf32>",
          "%y = graph.scatter_elements %x, %i, %u {axis = 0 : i64} : (tensor<2xf32>, "
          "tensor<2xi64>, tensor<3xf32>) -> tensor<2xf32>"),
      "operand 2 of 'graph.scatter_elements' has type 'tensor<3xf32>', expected "
      "'tensor<2xf32>'");
}

// --- gradients

TEST(Index, GatherGradients) {
  checkGradient(gather(0), {uniform({3, 2}), integer({4}, {0, 2, -1, 0})});
  checkGradient(gather(1), {uniform({2, 3, 2}), integer({2, 2}, {0, 7, 1, 1})});
  checkGradient(gather(0), {uniform({3}), integer({}, {1})});
  checkGradient(gather(0), {uniform({3, 2}), integer({0}, {})});
}

TEST(Index, ScatterAddGradients) {
  checkGradient(scatterAdd(3, 0), {integer({4}, {0, 2, -1, 9}), uniform({4, 2})});
  checkGradient(scatterAdd(4, 1), {integer({2, 2}, {0, 3, 1, 1}), uniform({2, 2, 2, 3})});
  checkGradient(scatterAdd(2, 0), {integer({0}, {}), uniform({0, 2})});
}

TEST(Index, ElementGradients) {
  checkGradient(gatherElements(1), {uniform({2, 3}), integer({2, 2}, {0, 0, -1, 5})});
  checkGradient(gatherElements(0), {uniform({3, 2}), integer({1, 2}, {2, 0})});
  checkGradient(scatterElements(1, "none"),
                {uniform({2, 3}), integer({2, 2}, {0, 2, -1, 1}), uniform({2, 2})});
  for (const char *reduction : {"mul", "max", "min"})
    checkGradient(scatterElements(1, reduction),
                  {uniform({2, 3}, 0.5, 2, 1), integer({2, 3}, {0, 0, -1, 7, 1, 1}),
                   uniform({2, 3}, 0.5, 2, 2)});
  checkGradient(scatterElements(1, "add"),
                {uniform({2, 3}), integer({2, 2}, {0, 0, -1, 7}), uniform({2, 2})});
}

/// The product's gradient where factors are zero: only a lone zero gets one.
TEST(Index, ScatterMulGradientsAtZeros) {
  checkGradient(scatterElements(0, "mul"),
                {real({3}, {2, 0, 0}), integer({3}, {0, 1, 2}), real({3}, {0, 3, 0})});
}

/// Equal operands of max share the cotangent.
TEST(Index, ScatterMaxGradientsAtTies) {
  HostTensor dy = real({2}, {6, 1});
  auto d = gradientsOf(scatterElements(0, "max"),
                       {real({2}, {5, 1}), integer({3}, {0, 0, 0}), real({3}, {5, 4, 5})},
                       {&dy});
  expectReals(d[0], {2, 1});
  expectReals(d[2], {2, 0, 2});
}

TEST(Index, UnknownReduction) {
  EXPECT_ERROR(
      errorsOfOp("%x: tensor<2xf32>, %i: tensor<2xi64>, %u: tensor<2xf32>",
                 "%y = graph.scatter_elements %x, %i, %u {axis = 0 : i64, reduction = "
                 "\"mean\"} : (tensor<2xf32>, tensor<2xi64>, tensor<2xf32>) -> "
                 "tensor<2xf32>"),
      "'reduction' of 'graph.scatter_elements' is 'mean', expected none, add, mul");
}

} // namespace
} // namespace sluice::graph
