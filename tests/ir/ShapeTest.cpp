// Views and rearrangements: values, folding, errors and gradients.
#include "tests/ir/GradientCheck.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace sluice::graph {
namespace {

using List = std::vector<int64_t>;

template <class Op> Build withList(List list) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0], list);
  };
}
Build slice(List starts, List sizes, List steps) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<SliceOp>(b.getUnknownLoc(), x[0], starts, sizes, steps);
  };
}
Build pad(List low, List high, double value = 0) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<PadOp>(b.getUnknownLoc(), x[0], low, high, llvm::APFloat(value));
  };
}
Build concat(int64_t axis) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ConcatOp>(b.getUnknownLoc(), mlir::ValueRange(x), axis);
  };
}

HostTensor counted(Shape shape) {
  HostTensor tensor = uniform(std::move(shape));
  for (size_t i = 0; i < tensor.reals.size(); ++i)
    tensor.reals[i] = i;
  return tensor;
}

// --- values

TEST(Shape, Reshape) {
  HostTensor y = run(withList<ReshapeOp>({3, 2}), {counted({2, 3})})[0];
  EXPECT_EQ(y.shape, (Shape{3, 2}));
  expectReals(y, {0, 1, 2, 3, 4, 5});
}

TEST(Shape, Transpose) {
  expectReals(run(withList<TransposeOp>({1, 0}), {counted({2, 3})})[0],
              {0, 3, 1, 4, 2, 5});
  HostTensor y = run(withList<TransposeOp>({2, 0, 1}), {counted({2, 1, 3})})[0];
  EXPECT_EQ(y.shape, (Shape{3, 2, 1}));
  expectReals(y, {0, 3, 1, 4, 2, 5});
}

TEST(Shape, Broadcast) {
  expectReals(run(withList<BroadcastOp>({2, 3}), {counted({3})})[0], {0, 1, 2, 0, 1, 2});
  expectReals(run(withList<BroadcastOp>({2, 2}), {counted({2, 1})})[0], {0, 0, 1, 1});
  expectReals(run(withList<BroadcastOp>({2}), {real({}, {7})})[0], {7, 7});
}

TEST(Shape, SliceForwardAndBackward) {
  expectReals(run(slice({1, 0}, {1, 2}, {1, 2}), {counted({2, 3})})[0], {3, 5});
  expectReals(run(slice({4}, {3}, {-2}), {counted({5})})[0], {4, 2, 0});
}

TEST(Shape, PadAndConcat) {
  expectReals(run(pad({1, 0}, {0, 1}, 9), {counted({1, 2})})[0], {9, 9, 9, 0, 1, 9});
  HostTensor y = run(concat(1), {counted({2, 1}), counted({2, 2})})[0];
  EXPECT_EQ(y.shape, (Shape{2, 3}));
  expectReals(y, {0, 0, 1, 1, 2, 3});
}

TEST(Shape, IntegersAreMovedToo) {
  EXPECT_EQ(
      run(withList<TransposeOp>({1, 0}), {integer({2, 2}, {1, 2, 3, 4})})[0].integers,
      (List{1, 3, 2, 4}));
  EXPECT_EQ(run(pad({1}, {1}, -3), {integer({1}, {5})})[0].integers, (List{-3, 5, -3}));
}

// --- folding

/// The operations left in the function after folding, but for its return.
List::size_type foldedCount(mlir::OwningOpRef<mlir::ModuleOp> &module) {
  mlir::GreedyRewriteConfig config;
  (void)mlir::applyPatternsAndFoldGreedily(*module, mlir::RewritePatternSet(&context()),
                                           config);
  EXPECT_TRUE(succeeded(mlir::verify(*module)));
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  return function.front().getOperations().size() - 1;
}

/// Folds `build` and compares what is left with what it computed before.
void expectFoldsTo(size_t operations, const Build &build, const HostTensor &x) {
  HostTensor before = run(build, {x})[0];
  auto module = moduleOf(build, {x});
  EXPECT_EQ(foldedCount(module), operations);
  StateMap state;
  auto after = interpret(module->lookupSymbol<mlir::func::FuncOp>("f"), {x}, state,
                         Precision::Double);
  ASSERT_TRUE(succeeded(after));
  EXPECT_EQ((*after)[0].shape, before.shape);
  expectReals((*after)[0], before.reals);
}

Build chain(Build first, Build second) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return second(b, {first(b, x)->getResult(0)});
  };
}

TEST(Shape, FoldsIdentities) {
  HostTensor x = counted({2, 3});
  expectFoldsTo(0, withList<ReshapeOp>({2, 3}), x);
  expectFoldsTo(0, withList<TransposeOp>({0, 1}), x);
  expectFoldsTo(0, withList<BroadcastOp>({2, 3}), x);
  expectFoldsTo(0, slice({0, 0}, {2, 3}, {1, 1}), x);
  expectFoldsTo(1, slice({1, 2}, {2, 3}, {-1, -1}), x);
}

TEST(Shape, FoldsCompositions) {
  HostTensor x = counted({2, 3});
  expectFoldsTo(1, chain(withList<ReshapeOp>({6}), withList<ReshapeOp>({3, 2})), x);
  expectFoldsTo(0, chain(withList<ReshapeOp>({6}), withList<ReshapeOp>({2, 3})), x);
  expectFoldsTo(0, chain(withList<TransposeOp>({1, 0}), withList<TransposeOp>({1, 0})),
                x);
  HostTensor cube = counted({2, 3, 4});
  expectFoldsTo(
      1, chain(withList<TransposeOp>({1, 2, 0}), withList<TransposeOp>({0, 2, 1})), cube);
  expectFoldsTo(1, chain(withList<BroadcastOp>({2, 3}), withList<BroadcastOp>({4, 2, 3})),
                counted({3}));
  expectFoldsTo(1, chain(slice({1, 2}, {1, 3}, {1, -1}), slice({0, 0}, {1, 2}, {1, 2})),
                x);
}

// --- errors

TEST(Shape, Errors) {
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>",
                          "%y = graph.reshape %x {shape = array<i64: 4>} : "
                          "(tensor<2x3xf32>) -> tensor<4xf32>"),
               "operand 0 of 'graph.reshape' has 6 elements, expected 4 (shape [4])");
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>",
                          "%y = graph.transpose %x {permutation = array<i64: 0, 0>} : "
                          "(tensor<2x3xf32>) -> tensor<2x2xf32>"),
               "'permutation' of 'graph.transpose' names dimension 0 twice");
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>",
                          "%y = graph.transpose %x {permutation = array<i64: 0>} "
                          ": (tensor<2x3xf32>) -> tensor<2xf32>"),
               "'permutation' of 'graph.transpose' has 1 entries, expected 2");
  EXPECT_ERROR(
      errorsOfOp("%x: tensor<2xf32>",
                 "%y = graph.broadcast %x {shape = array<i64: 3, 3>} : "
                 "(tensor<2xf32>) -> tensor<3x3xf32>"),
      "operand 0 of 'graph.broadcast' has shape [2], which does not repeat to [3, 3]");
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<5xf32>",
          "%y = graph.slice %x {starts = array<i64: 3>, sizes = array<i64: 3>, steps = "
          "array<i64: 1>} : (tensor<5xf32>) -> tensor<3xf32>"),
      "'graph.slice' takes elements 3 to 5 of dimension 0 of operand 0, expected 0 to 4");
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<5xf32>",
          "%y = graph.slice %x {starts = array<i64: 3>, sizes = array<i64: 1>, steps = "
          "array<i64: 0>} : (tensor<5xf32>) -> tensor<1xf32>"),
      "entry 0 of 'steps' of 'graph.slice' is 0");
  EXPECT_ERROR(errorsOfOp("%x: tensor<5xf32>",
                          "%y = graph.pad %x {low = array<i64: -1>, high = "
                          "array<i64: 0>, value = 0.0 : f64} : "
                          "(tensor<5xf32>) -> tensor<4xf32>"),
               "entry 0 of 'low' of 'graph.pad' is -1, expected at least 0");
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>, %z: tensor<3x3xf32>",
                          "%y = graph.concat %x, %z {axis = 1 : i64} : (tensor<2x3xf32>, "
                          "tensor<3x3xf32>) -> tensor<2x6xf32>"),
               "operand 1 of 'graph.concat' has type 'tensor<3x3xf32>', expected "
               "'tensor<2x3xf32>' but "
               "for dimension 1");
  EXPECT_ERROR(errorsOfOp("%x: tensor<3xf32>", "%y = graph.concat %x {axis = 1 : i64} : "
                                               "(tensor<3xf32>) -> tensor<3xf32>"),
               "'axis' of 'graph.concat' is 1, expected 0 to 0");
}

// --- gradients

TEST(Shape, RearrangementGradients) {
  checkGradient(withList<ReshapeOp>({3, 2}), {uniform({2, 3})});
  checkGradient(withList<ReshapeOp>({}), {uniform({1, 1})});
  checkGradient(withList<TransposeOp>({2, 0, 1}), {uniform({2, 3, 4})});
  checkGradient(withList<TransposeOp>({1, 0}), {uniform({0, 3})});
}

TEST(Shape, BroadcastGradients) {
  checkGradient(withList<BroadcastOp>({2, 3}), {uniform({3})});
  checkGradient(withList<BroadcastOp>({4, 2, 3}), {uniform({2, 1})});
  checkGradient(withList<BroadcastOp>({2, 2}), {uniform({})});
  checkGradient(withList<BroadcastOp>({1, 1}), {uniform({1})});
  checkGradient(withList<BroadcastOp>({0, 3}), {uniform({1, 3})});
}

TEST(Shape, SliceGradients) {
  checkGradient(slice({1, 0}, {2, 3}, {1, 1}), {uniform({4, 3})});
  checkGradient(slice({1}, {3}, {3}), {uniform({9})});
  checkGradient(slice({0}, {3}, {3}), {uniform({7})});
  checkGradient(slice({6}, {3}, {-2}), {uniform({8})});
  checkGradient(slice({4}, {5}, {-1}), {uniform({5})});
  checkGradient(slice({3, 1}, {2, 2}, {-3, 2}), {uniform({5, 4})});
  checkGradient(slice({3}, {1}, {5}), {uniform({5})});
  checkGradient(slice({0}, {0}, {1}), {uniform({5})});
}

TEST(Shape, PadAndConcatGradients) {
  checkGradient(pad({1, 0}, {2, 1}, 3), {uniform({2, 3})});
  checkGradient(pad({1}, {2}), {uniform({0})});
  checkGradient(concat(1), {uniform({2, 3}), uniform({2, 0}), uniform({2, 1}, -1, 1, 2)});
  Build twice = [](mlir::OpBuilder &b,
                   llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ConcatOp>(b.getUnknownLoc(), mlir::ValueRange{x[0], x[0]}, 0);
  };
  checkGradient(twice, {uniform({2})});
}

} // namespace
} // namespace sluice::graph
