// Each operation that is lowered by itself: through plan file and runtime, against the
// interpreter.

#include "tests/passes/plan/OperationCase.h"

namespace sluice {
namespace {

TEST(Operations, TransposeOfFourDimensions) {
  expectSame(
      "(%x: tensor<2x3x4x5xf32> {graph.name = \"x\"}) -> (tensor<4x2x5x3xf32> "
      "{graph.name = \"y\"})",
      R"(  %y = graph.transpose %x {permutation = array<i64: 2, 0, 3, 1>} : (tensor<2x3x4x5xf32>) -> tensor<4x2x5x3xf32>
  return %y : tensor<4x2x5x3xf32>)");
}

TEST(Operations, SlicesWithStepsAndBackwards) {
  expectSame(
      "(%x: tensor<6x7xf32> {graph.name = \"x\"}) -> (tensor<3x3xf32> {graph.name "
      "= \"a\"}, tensor<6x2xf32> {graph.name = \"b\"}, tensor<2x7xf32> "
      "{graph.name = \"c\"})",
      R"(  %a = graph.slice %x {starts = array<i64: 0, 1>, sizes = array<i64: 3, 3>, steps = array<i64: 2, 2>} : (tensor<6x7xf32>) -> tensor<3x3xf32>
  %b = graph.slice %x {starts = array<i64: 5, 6>, sizes = array<i64: 6, 2>, steps = array<i64: -1, -3>} : (tensor<6x7xf32>) -> tensor<6x2xf32>
  %c = graph.slice %x {starts = array<i64: 1, 0>, sizes = array<i64: 2, 7>, steps = array<i64: 1, 1>} : (tensor<6x7xf32>) -> tensor<2x7xf32>
  return %a, %b, %c : tensor<3x3xf32>, tensor<6x2xf32>, tensor<2x7xf32>)");
}

TEST(Operations, PadAndConcat) {
  expectSame(
      "(%x: tensor<2x3xf32> {graph.name = \"x\"}, %z: tensor<2x4xf32> {graph.name "
      "= \"z\"}) -> (tensor<5x4xf32> {graph.name = \"p\"}, tensor<2x10xf32> "
      "{graph.name = \"c\"})",
      R"(  %p = graph.pad %x {low = array<i64: 1, 0>, high = array<i64: 2, 1>, value = 1.5 : f64} : (tensor<2x3xf32>) -> tensor<5x4xf32>
  %c = graph.concat %x, %z, %x {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<2x10xf32>
  return %p, %c : tensor<5x4xf32>, tensor<2x10xf32>)");
}

TEST(Operations, GatherAndScatterAlongTheMiddle) {
  expectSame(
      "(%x: tensor<2x3x4xf32> {graph.name = \"x\"}, %i: tensor<5xi64> {graph.name "
      "= \"i\"}) -> (tensor<2x5x4xf32> {graph.name = \"g\"}, tensor<2x3x4xf32> "
      "{graph.name = \"s\"})",
      R"(  %g = graph.gather %x, %i {axis = 1 : i64} : (tensor<2x3x4xf32>, tensor<5xi64>) -> tensor<2x5x4xf32>
  %s = graph.scatter_add %i, %g {axis = 1 : i64, size = 3 : i64} : (tensor<5xi64>, tensor<2x5x4xf32>) -> tensor<2x3x4xf32>
  return %g, %s : tensor<2x5x4xf32>, tensor<2x3x4xf32>)");
}

TEST(Operations, GatherAndScatterElements) {
  expectSame(
      "(%x: tensor<3x4xf32> {graph.name = \"x\"}, %i: tensor<2x4xi64> {graph.name "
      "= \"i\"}) -> (tensor<2x4xf32> {graph.name = \"g\"}, tensor<3x4xf32> "
      "{graph.name = \"s\"}, tensor<3x4xf32> {graph.name = \"a\"}, tensor<3x4xf32> "
      "{graph.name = \"m\"}, tensor<3x4xf32> {graph.name = \"l\"})",
      R"(  %g = graph.gather_elements %x, %i {axis = 0 : i64} : (tensor<3x4xf32>, tensor<2x4xi64>) -> tensor<2x4xf32>
  %s = graph.scatter_elements %x, %i, %g {axis = 0 : i64} : (tensor<3x4xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %a = graph.scatter_elements %x, %i, %g {axis = 0 : i64, reduction = "add"} : (tensor<3x4xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %m = graph.scatter_elements %x, %i, %g {axis = 0 : i64, reduction = "mul"} : (tensor<3x4xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %l = graph.scatter_elements %x, %i, %g {axis = 0 : i64, reduction = "max"} : (tensor<3x4xf32>, tensor<2x4xi64>, tensor<2x4xf32>) -> tensor<3x4xf32>
  return %g, %s, %a, %m, %l : tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)");
}

TEST(Operations, ArgMaxAndRunningSum) {
  expectSame(
      "(%x: tensor<3x5x2xf32> {graph.name = \"x\"}) -> (tensor<3x2xi64> "
      "{graph.name = \"m\"}, tensor<3x5x2xf32> {graph.name = \"c\"})",
      R"(  %m = graph.argmax %x {axis = 1 : i64} : (tensor<3x5x2xf32>) -> tensor<3x2xi64>
  %c = graph.cumsum %x {axis = 1 : i64, reverse} : (tensor<3x5x2xf32>) -> tensor<3x5x2xf32>
  return %m, %c : tensor<3x2xi64>, tensor<3x5x2xf32>)");
}

TEST(Operations, ArgMaxAndRunningSumOfIntegers) {
  expectSame(
      "(%x: tensor<3x5x2xi64> {graph.name = \"x\"}) -> (tensor<3x2xi64> "
      "{graph.name = \"m\"}, tensor<3x5x2xi64> {graph.name = \"c\"})",
      R"(  %m = graph.argmax %x {axis = 1 : i64} : (tensor<3x5x2xi64>) -> tensor<3x2xi64>
  %c = graph.cumsum %x {axis = 1 : i64, reverse} : (tensor<3x5x2xi64>) -> tensor<3x5x2xi64>
  return %m, %c : tensor<3x2xi64>, tensor<3x5x2xi64>)");
}

TEST(Operations, NarrowIntegersAreWidenedForScansAndPositions) {
  expectSame(
      "(%x: tensor<3x5x2xi32> {graph.name = \"x\"}) -> (tensor<3x2xi64> {graph.name = "
      "\"m\"}, tensor<3x5x2xi32> {graph.name = \"c\"})",
      R"(  %m = graph.argmax %x {axis = 1 : i64} : (tensor<3x5x2xi32>) -> tensor<3x2xi64>
  %c = graph.cumsum %x {axis = 1 : i64, reverse} : (tensor<3x5x2xi32>) -> tensor<3x5x2xi32>
  return %m, %c : tensor<3x2xi64>, tensor<3x5x2xi32>)");
}

TEST(Operations, WhatHasNoKernelIsRefusedWithItsReaders) {
  PlanFolder folder;
  CompileOptions options;
  options.spec.entries = {"infer"};
  options.outPath = folder.file("m.plan");
  Compiled compiled = compileText(
      "func.func @forward(%x: tensor<4x3xf64> {graph.name = \"x\"}) -> (tensor<4xi64> "
      "{graph.name = \"y\"}) {\n"
      "  %m = graph.argmax %x {axis = 1 : i64} : (tensor<4x3xf64>) -> tensor<4xi64>\n"
      "  %y = graph.add %m, %m : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>\n"
      "  return %y : tensor<4xi64>\n}",
      options);
  EXPECT_FALSE(compiled.status.ok());
}

TEST(Operations, GroupedDilatedConvolutions) {
  expectSame(
      "(%x: tensor<2x4x9x8xf32> {graph.name = \"x\"}, %w: tensor<6x2x3x2xf32> "
      "{graph.name = \"w\"}, %d: tensor<4x1x3x3xf32> {graph.name = \"d\"}) -> "
      "(tensor<2x6x5x7xf32> {graph.name = \"y\"}, tensor<2x4x9x8xf32> {graph.name "
      "= \"z\"})",
      R"(  %y = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 2, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 2 : i64} : (tensor<2x4x9x8xf32>, tensor<6x2x3x2xf32>) -> tensor<2x6x5x7xf32>
  %z = graph.conv %x, %d {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 4 : i64} : (tensor<2x4x9x8xf32>, tensor<4x1x3x3xf32>) -> tensor<2x4x9x8xf32>
  return %y, %z : tensor<2x6x5x7xf32>, tensor<2x4x9x8xf32>)");
}

TEST(Operations, PoolsWithPads) {
  expectSame(
      "(%x: tensor<2x3x7xf32> {graph.name = \"x\"}) -> (tensor<2x3x4xf32> "
      "{graph.name = \"m\"}, tensor<2x3x4xf32> {graph.name = \"a\"})",
      R"(  %m = graph.max_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 1>, pads_end = array<i64: 1>, output = array<i64: 4>} : (tensor<2x3x7xf32>) -> tensor<2x3x4xf32>
  %a = graph.avg_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 1>, pads_end = array<i64: 1>, output = array<i64: 4>} : (tensor<2x3x7xf32>) -> tensor<2x3x4xf32>
  return %m, %a : tensor<2x3x4xf32>, tensor<2x3x4xf32>)");
}

// Heads: slices, reshapes and transposes around products, all of them views.
TEST(Operations, AttentionThroughViews) {
  expectSame(
      "(%x: tensor<2x5x24xf32> {graph.name = \"x\"}) -> (tensor<2x5x8xf32> "
      "{graph.name = \"y\"})",
      R"(  %q = graph.slice %x {starts = array<i64: 0, 0, 0>, sizes = array<i64: 2, 5, 8>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
  %k = graph.slice %x {starts = array<i64: 0, 0, 8>, sizes = array<i64: 2, 5, 8>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
  %v = graph.slice %x {starts = array<i64: 0, 0, 16>, sizes = array<i64: 2, 5, 8>, steps = array<i64: 1, 1, 1>} : (tensor<2x5x24xf32>) -> tensor<2x5x8xf32>
  %qr = graph.reshape %q {shape = array<i64: 2, 5, 2, 4>} : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
  %kr = graph.reshape %k {shape = array<i64: 2, 5, 2, 4>} : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
  %vr = graph.reshape %v {shape = array<i64: 2, 5, 2, 4>} : (tensor<2x5x8xf32>) -> tensor<2x5x2x4xf32>
  %qt = graph.transpose %qr {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x4xf32>) -> tensor<2x2x5x4xf32>
  %kt = graph.transpose %kr {permutation = array<i64: 0, 2, 3, 1>} : (tensor<2x5x2x4xf32>) -> tensor<2x2x4x5xf32>
  %vt = graph.transpose %vr {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x5x2x4xf32>) -> tensor<2x2x5x4xf32>
  %s = graph.contract %qt, %kt {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<2x2x5x4xf32>, tensor<2x2x4x5xf32>) -> tensor<2x2x5x5xf32>
  %p = graph.softmax %s {axis = 3 : i64} : (tensor<2x2x5x5xf32>) -> tensor<2x2x5x5xf32>
  %o = graph.contract %p, %vt {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<2x2x5x5xf32>, tensor<2x2x5x4xf32>) -> tensor<2x2x5x4xf32>
  %t = graph.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x2x5x4xf32>) -> tensor<2x5x2x4xf32>
  %y = graph.reshape %t {shape = array<i64: 2, 5, 8>} : (tensor<2x5x2x4xf32>) -> tensor<2x5x8xf32>
  return %y : tensor<2x5x8xf32>)");
}

// The backward of a softmax reads two tensors of the size of its result, one of them
// fresh from a product.
TEST(Operations, ChainReadsAnotherTensorOfTheSameSize) {
  expectSame("(%p: tensor<4x2x16x16xf32> {graph.name = \"p\"}, %a: tensor<4x2x16x8xf32> "
             "{graph.name = \"a\"}, %b: tensor<4x2x16x8xf32> {graph.name = \"b\"}) -> "
             "(tensor<4x2x16x16xf32> {graph.name = \"y\"})",
             R"(  %q = graph.exp %p : (tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  %qt = graph.transpose %q {permutation = array<i64: 0, 1, 3, 2>} : (tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  %c = graph.contract %qt, %a {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<4x2x16x16xf32>, tensor<4x2x16x8xf32>) -> tensor<4x2x16x8xf32>
  %g = graph.contract %c, %b {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 3>} : (tensor<4x2x16x8xf32>, tensor<4x2x16x8xf32>) -> tensor<4x2x16x16xf32>
  %m = graph.mul %g, %q : (tensor<4x2x16x16xf32>, tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  %s = graph.reduce %m {kind = "sum", axes = array<i64: 3>, keep} : (tensor<4x2x16x16xf32>) -> tensor<4x2x16x1xf32>
  %sb = graph.broadcast %s {shape = array<i64: 4, 2, 16, 16>} : (tensor<4x2x16x1xf32>) -> tensor<4x2x16x16xf32>
  %d = graph.sub %g, %sb : (tensor<4x2x16x16xf32>, tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  %z = graph.mul %d, %q : (tensor<4x2x16x16xf32>, tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  %y = graph.reshape %z {shape = array<i64: 4, 2, 16, 16>} : (tensor<4x2x16x16xf32>) -> tensor<4x2x16x16xf32>
  return %y : tensor<4x2x16x16xf32>)",
             1e-4);
}

// Products write their parts of a concatenation; one part is an input and is copied.
TEST(Operations, ConcatenationOfProducts) {
  expectSame(
      "(%a: tensor<3x4xf32> {graph.name = \"a\"}, %b: tensor<5x4xf32> {graph.name "
      "= \"b\"}) -> (tensor<3x14xf32> {graph.name = \"y\"})",
      R"(  %p = graph.contract %a, %b {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  %q = graph.contract %b, %a {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<5x4xf32>, tensor<3x4xf32>) -> tensor<5x3xf32>
  %t = graph.transpose %q {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %y = graph.concat %p, %a, %t {axis = 1 : i64} : (tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>) -> tensor<3x14xf32>
  return %y : tensor<3x14xf32>)");
}

TEST(Operations, ProductsOfOddDimensions) {
  expectSame(
      "(%a: tensor<2x3x4xf32> {graph.name = \"a\"}, %b: tensor<4x2x5xf32> "
      "{graph.name = \"b\"}, %v: tensor<4xf32> {graph.name = \"v\"}) -> "
      "(tensor<3x5xf32> {graph.name = \"s\"}, tensor<2x3xf32> {graph.name = "
      "\"m\"}, tensor<2x3x4x4xf32> {graph.name = \"o\"})",
      R"(  %s = graph.contract %a, %b {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 0, 2>, rhs_contract = array<i64: 1, 0>} : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<3x5xf32>
  %m = graph.contract %a, %v {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 0>} : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3xf32>
  %o = graph.contract %a, %v {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64>, rhs_contract = array<i64>} : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4x4xf32>
  return %s, %m, %o : tensor<3x5xf32>, tensor<2x3xf32>, tensor<2x3x4x4xf32>)");
}

TEST(Operations, EmptyTensors) {
  expectSame(
      "(%x: tensor<2x0xf32> {graph.name = \"x\"}, %z: tensor<0x3xf32> {graph.name "
      "= \"z\"}) -> (tensor<2x3xf32> {graph.name = \"p\"}, tensor<2xf32> "
      "{graph.name = \"s\"})",
      R"(  %p = graph.contract %x, %z {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<2x0xf32>, tensor<0x3xf32>) -> tensor<2x3xf32>
  %s = graph.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<2x0xf32>) -> tensor<2xf32>
  return %p, %s : tensor<2x3xf32>, tensor<2xf32>)");
}

TEST(Operations, ReductionsOverScatteredAxes) {
  expectSame(
      "(%x: tensor<2x3x4x5x6xf32> {graph.name = \"x\"}) -> (tensor<3x5xf32> "
      "{graph.name = \"s\"}, tensor<2x1x4x1x6xf32> {graph.name = \"m\"})",
      R"(  %s = graph.reduce %x {kind = "sum", axes = array<i64: 0, 2, 4>} : (tensor<2x3x4x5x6xf32>) -> tensor<3x5xf32>
  %m = graph.reduce %x {kind = "max", axes = array<i64: 1, 3>, keep} : (tensor<2x3x4x5x6xf32>) -> tensor<2x1x4x1x6xf32>
  return %s, %m : tensor<3x5xf32>, tensor<2x1x4x1x6xf32>)");
}

// The same value twice, an input, and a constant as results.
TEST(Operations, ResultsThatAreNotComputed) {
  expectSame("(%x: tensor<4xf32> {graph.name = \"x\"}) -> (tensor<4xf32> {graph.name = "
             "\"a\"}, tensor<4xf32> {graph.name = \"b\"}, tensor<2x2xf32> {graph.name = "
             "\"c\"}, tensor<3xf32> {graph.name = \"d\"})",
             R"(  %e = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  %r = graph.reshape %x {shape = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<2x2xf32>
  %d = graph.constant dense<[1.0, 2.0, 3.5]> : tensor<3xf32>
  return %e, %e, %r, %d : tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<3xf32>)");
}

TEST(Operations, MasksOfOneBytePerElement) {
  expectSame("(%x: tensor<3x17xf32> {graph.name = \"x\"}) -> (tensor<17x3xi1> "
             "{graph.name = \"t\"})",
             R"(  %z = graph.constant dense<0.0> : tensor<3x17xf32>
  %c = graph.compare %x, %z {predicate = "gt"} : (tensor<3x17xf32>, tensor<3x17xf32>) -> tensor<3x17xi1>
  %t = graph.transpose %c {permutation = array<i64: 1, 0>} : (tensor<3x17xi1>) -> tensor<17x3xi1>
  return %t : tensor<17x3xi1>)");
}

} // namespace
} // namespace sluice
