// Contractions and convolutions: values, errors and gradients.
#include "tests/ir/GradientCheck.h"

namespace sluice::graph {
namespace {

using List = std::vector<int64_t>;

struct Pairing {
  List lhsBatch, rhsBatch, lhsContract, rhsContract;
};

Build contract(Pairing p) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ContractOp>(b.getUnknownLoc(), x[0], x[1], p.lhsBatch, p.rhsBatch,
                                p.lhsContract, p.rhsContract);
  };
}

struct Convolution {
  List strides, dilations, padsBegin, padsEnd;
  int64_t groups = 1;
};

Build conv(Convolution c) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<ConvOp>(b.getUnknownLoc(), x[0], x[1], c.strides, c.dilations,
                            c.padsBegin, c.padsEnd, c.groups);
  };
}
template <class Op> Build convAdjoint(Convolution c, List shape) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0], x[1], shape, c.strides, c.dilations,
                        c.padsBegin, c.padsEnd, c.groups);
  };
}

// --- contract

TEST(Contract, MatrixProduct) {
  HostTensor a = real({2, 3}, {1, 2, 3, 4, 5, 6}), b = real({3, 2}, {1, 0, 0, 1, 1, 1});
  HostTensor y = run(contract({{}, {}, {1}, {0}}), {a, b})[0];
  EXPECT_EQ(y.shape, (Shape{2, 2}));
  expectReals(y, {4, 5, 10, 11});
}

TEST(Contract, BatchesAndSeveralSummedDimensions) {
  HostTensor a = uniform({2, 3, 4, 5}, -1, 1, 1), b = uniform({5, 2, 6, 4}, -1, 1, 2);
  HostTensor y = run(contract({{0}, {1}, {3, 2}, {0, 3}}), {a, b})[0];
  ASSERT_EQ(y.shape, (Shape{2, 3, 6}));
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 6; ++j) {
        double sum = 0;
        for (int k = 0; k < 4; ++k)
          for (int l = 0; l < 5; ++l)
            sum += a.reals[((n * 3 + i) * 4 + k) * 5 + l] *
                   b.reals[((l * 2 + n) * 6 + j) * 4 + k];
        EXPECT_NEAR(y.reals[(n * 3 + i) * 6 + j], sum, 1e-12);
      }
}

TEST(Contract, IntegersWrapAndEmptySumsAreZero) {
  EXPECT_EQ(run(contract({{}, {}, {0}, {0}}),
                {integer({2}, {100, 3}, 8), integer({2}, {2, 5}, 8)})[0]
                .integers,
            (List{200 + 15 - 256}));
  expectReals(run(contract({{}, {}, {1}, {0}}), {uniform({2, 0}), uniform({0, 1})})[0],
              {0, 0});
}

TEST(Contract, LargeProductsAgreeWithThePlainSum) {
  HostTensor a = uniform({5, 130}, -1, 1, 1), b = uniform({130, 700}, -1, 1, 2);
  HostTensor y = run(contract({{}, {}, {1}, {0}}), {a, b})[0];
  for (int i : {0, 4})
    for (int j : {0, 511, 512, 699}) {
      double sum = 0;
      for (int k = 0; k < 130; ++k)
        sum += a.reals[i * 130 + k] * b.reals[k * 700 + j];
      EXPECT_NEAR(y.reals[i * 700 + j], sum, 1e-12);
    }
}

TEST(Contract, Errors) {
  auto errors = [](const char *lists, const char *types) {
    return errorsOfOp("%a: tensor<2x3xf32>, %b: tensor<4x2xf32>",
                      std::string("%y = graph.contract %a, %b {") + lists + "} : (" +
                          types);
  };
  const char *types = "tensor<2x3xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>";
  EXPECT_ERROR(
      errors(
          "lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, "
          "rhs_contract = array<i64: 0>",
          types),
      "operand 1 of 'graph.contract' has 4 elements in dimension 0, expected 3 "
      "(dimension 1 of "
      "operand 0)");
  EXPECT_ERROR(
      errors(
          "lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, "
          "rhs_contract = array<i64>",
          types),
      "'rhs_contract' of 'graph.contract' has 0 entries, expected 1");
  EXPECT_ERROR(
      errors("lhs_batch = array<i64: 0>, rhs_batch = array<i64: 1>, lhs_contract = "
             "array<i64: 0>,"
             " rhs_contract = array<i64: 0>",
             types),
      "'lhs_batch and lhs_contract' of 'graph.contract' names dimension 0 twice");
  EXPECT_ERROR(
      errors(
          "lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, "
          "rhs_contract = array<i64: 0>",
          types),
      "but the operand has 2 dimensions");
}

TEST(Contract, Gradients) {
  checkGradient(contract({{}, {}, {1}, {0}}),
                {uniform({2, 3}), uniform({3, 4}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {1}, {1}}),
                {uniform({2, 3}), uniform({4, 3}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {0}, {1}}),
                {uniform({3, 2}), uniform({4, 3}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {2}, {1}}),
                {uniform({2, 2, 3}), uniform({4, 3}, -1, 1, 2)});
  checkGradient(contract({{0, 1}, {0, 1}, {3}, {3}}),
                {uniform({2, 2, 3, 2}), uniform({2, 2, 4, 2}, -1, 1, 2)});
  checkGradient(contract({{2, 0}, {0, 3}, {3, 1}, {1, 4}}),
                {uniform({2, 3, 4, 2}), uniform({4, 2, 3, 2, 3}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {}, {}}), {uniform({2}), uniform({3}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {0}, {0}}), {uniform({3}), uniform({3}, -1, 1, 2)});
  checkGradient(contract({{}, {}, {1}, {0}}), {uniform({2, 0}), uniform({0, 3})});
  checkGradient(contract({{}, {}, {1}, {0}}), {uniform({0, 2}), uniform({2, 1})});
}

/// The number of transposes among the operations that compute the gradients.
int transposesInGradient(Pairing p, Shape lhs, Shape rhs) {
  auto module = moduleOf(contract(p), {uniform(lhs), uniform(rhs)});
  mlir::Block &body = module->lookupSymbol<mlir::func::FuncOp>("f").front();
  auto op = body.getTerminator()->getOperand(0).getDefiningOp<ContractOp>();
  mlir::OpBuilder builder(body.getTerminator());
  llvm::SmallVector<mlir::Value> cotangents{op.getY()};
  llvm::SmallVector<bool> needed{true, true};
  GradientContext gradient(cotangents, needed);
  EXPECT_TRUE(succeeded(op.buildGradient(builder, gradient)));
  return std::distance(body.op_begin<TransposeOp>(), body.op_end<TransposeOp>());
}

TEST(Contract, GradientsOfUsualLayersNeedNoTranspose) {
  EXPECT_EQ(transposesInGradient({{}, {}, {1}, {0}}, {2, 3}, {3, 4}), 0); // x W
  EXPECT_EQ(transposesInGradient({{}, {}, {1}, {1}}, {2, 3}, {4, 3}), 0); // x W^T
  EXPECT_EQ(transposesInGradient({{}, {}, {2}, {1}}, {2, 5, 3}, {4, 3}),
            0); // of sequences
  EXPECT_EQ(transposesInGradient({{0}, {0}, {2}, {2}}, {2, 5, 3}, {2, 5, 3}), 0); // q k^T
  EXPECT_EQ(transposesInGradient({{0}, {0}, {2}, {1}}, {2, 5, 5}, {2, 5, 3}), 0); // p v
}

TEST(Contract, Flops) {
  auto module =
      moduleOf(contract({{0}, {0}, {2}, {1}}), {uniform({2, 3, 4}), uniform({2, 4, 5})});
  mlir::Block &body = module->lookupSymbol<mlir::func::FuncOp>("f").front();
  auto op = llvm::cast<Costed>(body.getTerminator()->getOperand(0).getDefiningOp());
  EXPECT_EQ(op.flops(), 2.0 * 2 * 3 * 5 * 4);
}

// --- conv

TEST(Conv, HandValues) {
  HostTensor x = real({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
             w = real({1, 1, 2, 2}, {1, 0, 0, -1});
  expectReals(run(conv({{1, 1}, {1, 1}, {0, 0}, {0, 0}}), {x, w})[0], {-4, -4, -4, -4});
  expectReals(run(conv({{2, 2}, {1, 1}, {1, 1}, {0, 0}}), {x, w})[0], {-1, -3, -7, -4});
  HostTensor line = real({1, 1, 5}, {1, 2, 3, 4, 5}), taps = real({1, 1, 2}, {1, 10});
  expectReals(run(conv({{1}, {3}, {0}, {0}}), {line, taps})[0], {41, 52});
}

TEST(Conv, GroupsKeepChannelsApart) {
  HostTensor x = real({1, 2, 2}, {1, 2, 10, 20}), w = real({2, 1, 1}, {3, 5});
  expectReals(run(conv({{1}, {1}, {0}, {0}, 2}), {x, w})[0], {3, 6, 50, 100});
}

const Convolution plain1d{{1}, {1}, {1}, {1}};
const Convolution strided2d{{2, 1}, {1, 2}, {1, 0}, {0, 2}, 2};
const Convolution cubic{{1, 2, 1}, {1, 1, 2}, {0, 1, 1}, {1, 0, 1}};

TEST(Conv, Gradients) {
  checkGradient(conv(plain1d), {uniform({2, 2, 4}), uniform({3, 2, 3}, -1, 1, 2)});
  checkGradient(conv(strided2d),
                {uniform({2, 4, 5, 4}), uniform({2, 2, 2, 3}, -1, 1, 2)});
  checkGradient(conv(cubic),
                {uniform({1, 1, 2, 3, 3}), uniform({2, 1, 2, 2, 2}, -1, 1, 2)});
  checkGradient(conv(plain1d), {uniform({0, 2, 4}), uniform({3, 2, 3})});
  checkGradient(conv({{1, 1}, {1, 1}, {0, 0}, {0, 0}}),
                {uniform({1, 1, 1, 1}), uniform({1, 1, 1, 1}, -1, 1, 2)});
}

TEST(Conv, AdjointsHaveGradientsToo) {
  // y of strided2d on 5x4 with 2x3 kernels is 3x2.
  checkGradient(convAdjoint<ConvInputGradOp>(strided2d, {5, 4}),
                {uniform({2, 2, 3, 2}), uniform({2, 2, 2, 3}, -1, 1, 2)});
  checkGradient(convAdjoint<ConvWeightGradOp>(strided2d, {2, 3}),
                {uniform({2, 4, 5, 4}), uniform({2, 2, 3, 2}, -1, 1, 2)});
}

TEST(Conv, TransposedConvolution) {
  // Stride 2 spreads the input and overlaps the kernels' ends.
  HostTensor x = real({1, 1, 2}, {1, 10}), w = real({1, 1, 3}, {1, 2, 3});
  expectReals(run(convAdjoint<ConvInputGradOp>({{2}, {1}, {0}, {0}}, {5}), {x, w})[0],
              {1, 2, 13, 20, 30});
}

TEST(Conv, Errors) {
  auto errors = [](const char *x, const char *w, const char *attributes, const char *y) {
    return errorsOfOp(std::string("%x: ") + x + ", %w: " + w,
                      std::string("%y = graph.conv %x, %w {dilations = array<i64: 1>, ") +
                          attributes + "} : (" + x + ", " + w + ") -> " + y);
  };
  const char *usual =
      "strides = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, "
      "groups = 1 : i64";
  EXPECT_ERROR(
      errors("tensor<1x2x5xf32>", "tensor<3x4x3xf32>", usual, "tensor<1x3x3xf32>"),
      "operand 0 of 'graph.conv' has 2 elements in dimension 1, expected 4");
  EXPECT_ERROR(
      errors("tensor<1x2x2xf32>", "tensor<3x2x3xf32>", usual, "tensor<1x3x0xf32>"),
      "the window of 'graph.conv' covers 3 elements in spatial dimension 0, expected 1 "
      "to the "
      "padded size 2");
  EXPECT_ERROR(errors("tensor<1x2xf32>", "tensor<3x2xf32>", usual, "tensor<1x3xf32>"),
               "'graph.conv' has 0 spatial dimensions, expected 1 to 3");
  const char *noStride =
      "strides = array<i64: 0>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, "
      "groups = 1 : i64";
  EXPECT_ERROR(
      errors("tensor<1x2x5xf32>", "tensor<3x2x3xf32>", noStride, "tensor<1x3x3xf32>"),
      "entry 0 of 'strides' of 'graph.conv' is 0, expected at least 1");
  const char *groups =
      "strides = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, "
      "groups = 2 : i64";
  EXPECT_ERROR(
      errors("tensor<1x2x5xf32>", "tensor<3x1x3xf32>", groups, "tensor<1x3x3xf32>"),
      "'groups' of 'graph.conv' is 2, expected a divisor of the 3 channels");
  EXPECT_ERROR(
      errorsOfOp("%dy: tensor<1x3x4xf32>, %w: tensor<3x2x3xf32>",
                 "%y = graph.conv_input_grad %dy, %w {shape = array<i64: 5>, strides = "
                 "array<i64: "
                 "1>, dilations = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = "
                 "array<i64: "
                 "0>, groups = 1 : i64} : (tensor<1x3x4xf32>, tensor<3x2x3xf32>) -> "
                 "tensor<1x2x5xf32>"),
      "operand 0 of 'graph.conv_input_grad' has 4 elements in dimension 2, expected 3");
}

} // namespace
} // namespace sluice::graph
