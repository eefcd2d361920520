// Operations on bf16 and f16, through plan file and runtime, against the interpreter.

#include "tests/passes/plan/OperationCase.h"

namespace sluice {
namespace {

/// `text` with the element type in place of every "half".
std::string with(const std::string &type, std::string text) {
  for (size_t at; (at = text.find("half")) != std::string::npos;)
    text.replace(at, 4, type);
  return text;
}

/// Rounded results may fall on either side where the sums differ in their last place.
void expectSameInBoth(const std::string &signature, const std::string &body) {
  for (auto [type, tolerance] : {std::pair("bf16", 8e-3), std::pair("f16", 1e-3)}) {
    SCOPED_TRACE(type);
    expectSame(with(type, signature), with(type, body), tolerance);
  }
}

TEST(HalfOperations, Products) {
  expectSameInBoth(
      "(%x: tensor<300x290xf32> {graph.name = \"x\"}, %w: tensor<20x290xf32> "
      "{graph.name = \"w\"}) -> (tensor<300x20xf32> {graph.name = \"wide\"}, "
      "tensor<300x20xf32> {graph.name = \"rounded\"})",
      R"(  %a = graph.cast %x {element_type = half} : (tensor<300x290xf32>) -> tensor<300x290xhalf>
  %b = graph.cast %w {element_type = half} : (tensor<20x290xf32>) -> tensor<20x290xhalf>
  %p = graph.contract %a, %b {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<300x290xhalf>, tensor<20x290xhalf>) -> tensor<300x20xf32>
  %q = graph.contract %a, %b {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, round_to = half} : (tensor<300x290xhalf>, tensor<20x290xhalf>) -> tensor<300x20xhalf>
  %y = graph.cast %q {element_type = f32} : (tensor<300x20xhalf>) -> tensor<300x20xf32>
  return %p, %y : tensor<300x20xf32>, tensor<300x20xf32>)");
}

/// A sum so long that it is cut into slices, and one of nothing.
TEST(HalfOperations, LongAndEmptySums) {
  expectSameInBoth(
      "(%x: tensor<4100x5xf32> {graph.name = \"x\"}, %z: tensor<3x0xf32> {graph.name = "
      "\"z\"}) -> (tensor<5x5xf32> {graph.name = \"long\"}, tensor<3x3xf32> "
      "{graph.name = \"empty\"})",
      R"(  %a = graph.cast %x {element_type = half} : (tensor<4100x5xf32>) -> tensor<4100x5xhalf>
  %p = graph.contract %a, %a {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 0>, rhs_contract = array<i64: 0>, round_to = half} : (tensor<4100x5xhalf>, tensor<4100x5xhalf>) -> tensor<5x5xhalf>
  %y = graph.cast %p {element_type = f32} : (tensor<5x5xhalf>) -> tensor<5x5xf32>
  %b = graph.cast %z {element_type = half} : (tensor<3x0xf32>) -> tensor<3x0xhalf>
  %q = graph.contract %b, %b {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, round_to = half} : (tensor<3x0xhalf>, tensor<3x0xhalf>) -> tensor<3x3xhalf>
  %e = graph.cast %q {element_type = f32} : (tensor<3x3xhalf>) -> tensor<3x3xf32>
  return %y, %e : tensor<5x5xf32>, tensor<3x3xf32>)");
}

/// Kernels that widen what they read.
TEST(HalfOperations, AveragesAndSumsOfRows) {
  expectSameInBoth(
      "(%x: tensor<2x3x6x8xf32> {graph.name = \"x\"}, %u: tensor<5x7xf32> {graph.name = "
      "\"u\"}, %i: tensor<5xi64> {graph.name = \"i\", graph.bounds = array<i64: 0, 3>}) "
      "-> "
      "(tensor<2x3x3x4xf32> {graph.name = \"y\"}, tensor<2x3x6x8xf32> {graph.name = "
      "\"dx\"}, tensor<4x7xf32> {graph.name = \"sums\"}, tensor<5x7xf32> {graph.name = "
      "\"twice\"})",
      R"(  %0 = graph.cast %x {element_type = half} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xhalf>
  %1 = graph.cast %0 {element_type = f32} : (tensor<2x3x6x8xhalf>) -> tensor<2x3x6x8xf32>
  %2 = graph.avg_pool %1 {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 3, 4>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x3x4xf32>
  %3 = graph.cast %2 {element_type = half} : (tensor<2x3x3x4xf32>) -> tensor<2x3x3x4xhalf>
  %4 = graph.cast %3 {element_type = f32} : (tensor<2x3x3x4xhalf>) -> tensor<2x3x3x4xf32>
  %5 = graph.avg_pool_grad %4 {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 3, 4>, shape = array<i64: 6, 8>} : (tensor<2x3x3x4xf32>) -> tensor<2x3x6x8xf32>
  %6 = graph.cast %u {element_type = half} : (tensor<5x7xf32>) -> tensor<5x7xhalf>
  %7 = graph.cast %6 {element_type = f32} : (tensor<5x7xhalf>) -> tensor<5x7xf32>
  %8 = graph.scatter_add %i, %7 {axis = 0 : i64, size = 4 : i64} : (tensor<5xi64>, tensor<5x7xf32>) -> tensor<4x7xf32>
  %9 = graph.add %7, %7 : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xf32>
  return %2, %5, %8, %9 : tensor<2x3x3x4xf32>, tensor<2x3x6x8xf32>, tensor<4x7xf32>, tensor<5x7xf32>)");
}

/// Heads of attention: transposes are folded into strides of two bytes.
TEST(HalfOperations, BatchesThroughTransposes) {
  expectSameInBoth(
      "(%x: tensor<2x9x3x8xf32> {graph.name = \"x\"}) -> (tensor<2x9x3x9xf32> "
      "{graph.name = \"y\"})",
      R"(  %a = graph.cast %x {element_type = half} : (tensor<2x9x3x8xf32>) -> tensor<2x9x3x8xhalf>
  %t = graph.transpose %a {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x9x3x8xhalf>) -> tensor<2x3x9x8xhalf>
  %s = graph.contract %t, %t {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 3>, round_to = half} : (tensor<2x3x9x8xhalf>, tensor<2x3x9x8xhalf>) -> tensor<2x3x9x9xhalf>
  %u = graph.transpose %s {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x3x9x9xhalf>) -> tensor<2x9x3x9xhalf>
  %y = graph.cast %u {element_type = f32} : (tensor<2x9x3x9xhalf>) -> tensor<2x9x3x9xf32>
  return %y : tensor<2x9x3x9xf32>)");
}

std::string geometry(int64_t stride, int64_t pad, int64_t groups) {
  std::string s = std::to_string(stride), p = std::to_string(pad);
  return "strides = array<i64: " + s + ", " + s + ">, dilations = array<i64: 1, 1>, " +
         "pads_begin = array<i64: " + p + ", " + p + ">, pads_end = array<i64: " + p +
         ", " + p + ">, groups = " + std::to_string(groups) + " : i64";
}

/// A convolution and both gradients, 4 channels with `groups` (4: depthwise), results
/// of f32 and rounded.
void checkConvolutions(int64_t groups) {
  std::string w = "tensor<8x" + std::to_string(4 / groups) + "x3x3x",
              x = "tensor<2x4x9x9x", y = "tensor<2x8x5x5x";
  std::string body = "  %a = graph.cast %x {element_type = half} : (" + x + "f32>) -> " +
                     x + "half>\n  %b = graph.cast %w {element_type = half} : (" + w +
                     "f32>) -> " + w +
                     "half>\n  %d = graph.cast %dy {element_type = " + "half} : (" + y +
                     "f32>) -> " + y + "half>\n";
  std::string results, types, declared;
  struct Product {
    std::string op, operands, shape, from, result;
  };
  for (const Product &p :
       {Product{"conv", "%a, %b", "", x + "half>, " + w + "half>", y},
        Product{"conv_input_grad", "%d, %b", "shape = array<i64: 9, 9>, ",
                y + "half>, " + w + "half>", x},
        Product{"conv_weight_grad", "%a, %d", "shape = array<i64: 3, 3>, ",
                x + "half>, " + y + "half>", w}}) {
    std::string call = " = graph." + p.op + " " + p.operands + " {" + p.shape +
                       geometry(2, 1, groups),
                to = "} : (" + p.from + ") -> " + p.result;
    body += "  %" + p.op + call + to + "f32>\n";
    body += "  %" + p.op + "_h" + call + ", round_to = half" + to + "half>\n";
    body += "  %" + p.op + "_r = graph.cast %" + p.op + "_h {element_type = f32} : (" +
            p.result + "half>) -> " + p.result + "f32>\n";
    for (std::string value : {p.op, p.op + "_r"}) {
      std::string comma = results.empty() ? "" : ", ";
      results += comma + "%" + value, types += comma + p.result + "f32>";
      declared += comma + p.result + "f32> {graph.name = \"" + value + "\"}";
    }
  }
  expectSameInBoth("(%x: " + x + "f32> {graph.name = \"x\"}, %w: " + w +
                       "f32> {graph.name = \"w\"}, %dy: " + y +
                       "f32> {graph.name = \"dy\"}) -> (" + declared + ")",
                   body + "  return " + results + " : " + types);
}

TEST(HalfOperations, Convolutions) { checkConvolutions(1); }
TEST(HalfOperations, DepthwiseConvolutions) { checkConvolutions(4); }

TEST(HalfOperations, Pools) {
  expectSameInBoth(
      "(%x: tensor<2x3x7xf32> {graph.name = \"x\"}) -> (tensor<2x3x4xf32> {graph.name = "
      "\"m\"}, tensor<2x3x4xf32> {graph.name = \"a\"})",
      R"(  %h = graph.cast %x {element_type = half} : (tensor<2x3x7xf32>) -> tensor<2x3x7xhalf>
  %m = graph.max_pool %h {kernel = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 1>, pads_end = array<i64: 1>, output = array<i64: 4>} : (tensor<2x3x7xhalf>) -> tensor<2x3x4xhalf>
  %a = graph.avg_pool %h {kernel = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 1>, pads_end = array<i64: 1>, output = array<i64: 4>} : (tensor<2x3x7xhalf>) -> tensor<2x3x4xhalf>
  %p = graph.cast %m {element_type = f32} : (tensor<2x3x4xhalf>) -> tensor<2x3x4xf32>
  %q = graph.cast %a {element_type = f32} : (tensor<2x3x4xhalf>) -> tensor<2x3x4xf32>
  return %p, %q : tensor<2x3x4xf32>, tensor<2x3x4xf32>)");
}

/// The position comes from 16 bits, the gradient from either; its sums stay f32.
TEST(HalfOperations, MaximumPoolGradients) {
  std::string pool =
      "{kernel = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, "
      "pads_begin = array<i64: 1>, pads_end = array<i64: 1>, output = array<i64: 4>}";
  expectSameInBoth(
      "(%x: tensor<2x3x7xf32> {graph.name = \"x\"}, %dy: tensor<2x3x4xf32> {graph.name = "
      "\"dy\"}) -> (tensor<2x3x7xf32> {graph.name = \"a\"}, tensor<2x3x7xf32> "
      "{graph.name = \"b\"}, tensor<2x3x7xf32> {graph.name = \"c\"})",
      R"(  %h = graph.cast %x {element_type = half} : (tensor<2x3x7xf32>) -> tensor<2x3x7xhalf>
  %d = graph.cast %dy {element_type = half} : (tensor<2x3x4xf32>) -> tensor<2x3x4xhalf>
  %w = graph.cast %h {element_type = f32} : (tensor<2x3x7xhalf>) -> tensor<2x3x7xf32>
  %a = graph.max_pool_grad %h, %dy )" +
          pool + R"( : (tensor<2x3x7xhalf>, tensor<2x3x4xf32>) -> tensor<2x3x7xf32>
  %b = graph.max_pool_grad %w, %dy )" +
          pool + R"( : (tensor<2x3x7xf32>, tensor<2x3x4xf32>) -> tensor<2x3x7xf32>
  %c = graph.max_pool_grad %h, %d )" +
          pool + R"( : (tensor<2x3x7xhalf>, tensor<2x3x4xhalf>) -> tensor<2x3x7xf32>
  return %a, %b, %c : tensor<2x3x7xf32>, tensor<2x3x7xf32>, tensor<2x3x7xf32>)");
}

TEST(HalfOperations, Moves) {
  expectSameInBoth(
      "(%x: tensor<5x6xf32> {graph.name = \"x\"}, %i: tensor<7xi64> {graph.name = "
      "\"i\"}) -> (tensor<7x6xf32> {graph.name = \"rows\"}, tensor<6x5xf32> "
      "{graph.name = \"turned\"}, tensor<7x9xf32> {graph.name = \"padded\"}, "
      "tensor<5x9xf32> {graph.name = \"joined\"})",
      R"(  %h = graph.cast %x {element_type = half} : (tensor<5x6xf32>) -> tensor<5x6xhalf>
  %g = graph.gather %h, %i {axis = 0 : i64} : (tensor<5x6xhalf>, tensor<7xi64>) -> tensor<7x6xhalf>
  %t = graph.transpose %h {permutation = array<i64: 1, 0>} : (tensor<5x6xhalf>) -> tensor<6x5xhalf>
  %p = graph.pad %h {low = array<i64: 1, 2>, high = array<i64: 1, 1>, value = 0xFFF0000000000000 : f64} : (tensor<5x6xhalf>) -> tensor<7x9xhalf>
  %s = graph.slice %h {starts = array<i64: 0, 5>, sizes = array<i64: 5, 3>, steps = array<i64: 1, -2>} : (tensor<5x6xhalf>) -> tensor<5x3xhalf>
  %c = graph.concat %h, %s {axis = 1 : i64} : (tensor<5x6xhalf>, tensor<5x3xhalf>) -> tensor<5x9xhalf>
  %1 = graph.cast %g {element_type = f32} : (tensor<7x6xhalf>) -> tensor<7x6xf32>
  %2 = graph.cast %t {element_type = f32} : (tensor<6x5xhalf>) -> tensor<6x5xf32>
  %3 = graph.cast %p {element_type = f32} : (tensor<7x9xhalf>) -> tensor<7x9xf32>
  %4 = graph.cast %c {element_type = f32} : (tensor<5x9xhalf>) -> tensor<5x9xf32>
  return %1, %2, %3, %4 : tensor<7x6xf32>, tensor<6x5xf32>, tensor<7x9xf32>, tensor<5x9xf32>)");
}

} // namespace
} // namespace sluice
