// Attention against its form in core operations, and its gradient against central
// differences.

#include "tests/ir/GradientCheck.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::graph;

namespace {

struct Form {
  int64_t kvHeads = 2, valueSize = 3;
  bool causal = false, masked = false;
  double ratio = 0;
  int64_t samples = 0;
};
constexpr int64_t batch = 2, heads = 2, queries = 3, keys = 4, size = 2;

Build attention(const Form &form) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    Value mask = form.masked ? x[3] : Value();
    ValueRange random = form.ratio > 0 ? x.take_back(3) : ArrayRef<Value>();
    return b.create<AttentionOp>(b.getUnknownLoc(), x[0], x[1], x[2], mask, random,
                                 b.getF64FloatAttr(0.5),
                                 form.causal ? b.getI64IntegerAttr(1) : IntegerAttr(),
                                 b.getF64FloatAttr(form.ratio), b.getI64IntegerAttr(9),
                                 b.getI64IntegerAttr(form.samples), TypeAttr());
  };
}

std::vector<HostTensor> inputsOf(const Form &form) {
  std::vector<HostTensor> inputs{
      uniform({batch, heads, queries, size}, -2, 2, 1),
      uniform({batch, form.kvHeads, keys, size}, -2, 2, 2),
      uniform({batch, form.kvHeads, keys, form.valueSize}, -2, 2, 3)};
  if (form.masked)
    inputs.push_back(uniform({batch, 1, queries, keys}, -1, 1, 4));
  for (int64_t number : {7, 3, 10})
    if (form.ratio > 0)
      inputs.push_back(integer({}, {number}));
  return inputs;
}

std::vector<Form> forms() {
  std::vector<Form> all;
  for (int64_t kvHeads : {1, 2})
    for (bool causal : {false, true})
      for (bool masked : {false, true})
        for (int64_t samples : {-1, 0, 2})
          all.push_back({kvHeads, 3, causal, masked, samples < 0 ? 0 : 0.4,
                         std::max<int64_t>(samples, 0)});
  return all;
}

/// The results with the operation replaced by core operations.
std::vector<HostTensor> reference(const Form &form,
                                  const std::vector<HostTensor> &inputs) {
  OwningOpRef<ModuleOp> module = moduleOf(attention(form), inputs);
  auto function = module->lookupSymbol<func::FuncOp>("f");
  Operation *end = function.front().getTerminator();
  auto op = end->getOperand(0).getDefiningOp<AttentionOp>();
  OpBuilder builder(op);
  SmallVector<Value> values = op.reference(builder);
  end->setOperands(values);
  op->erase();
  EXPECT_TRUE(succeeded(verify(*module)));
  StateMap state;
  auto results = interpret(function, inputs, state, Precision::Double);
  EXPECT_TRUE(succeeded(results));
  return succeeded(results) ? *results : std::vector<HostTensor>();
}

TEST(Attention, IsWhatCoreOperationsGive) {
  for (const Form &form : forms()) {
    std::vector<HostTensor> inputs = inputsOf(form);
    auto expected = reference(form, inputs), found = run(attention(form), inputs);
    ASSERT_EQ(found.size(), 2u);
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(found[r].shape, expected[r].shape);
      expectReals(found[r], expected[r].reals, 1e-6); // dropout's factor is an f32
    }
  }
}

/// A mask has no gradient, but the check asks for those of all operands.
TEST(Attention, GradientIsThatOfDifferences) {
  for (const Form &form : forms()) {
    if (form.masked)
      continue;
    HostTensor weights = uniform({batch, heads, queries, form.valueSize}, -1, 1, 5);
    compareWithDifferences(attention(form), inputsOf(form), {&weights, nullptr}, {});
  }
}

TEST(Attention, RowsThatSeeNothingAreZero) {
  Form form{.masked = true};
  std::vector<HostTensor> inputs = inputsOf(form);
  double none = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < keys; ++j)
    inputs[3].reals[keys + j] = none; // query 1 of sample 0
  auto found = run(attention(form), inputs);
  EXPECT_EQ(found[1].reals[1], none);
  EXPECT_EQ(found[1].reals[queries + 1], 0);
  for (int64_t d = 0; d < form.valueSize; ++d)
    EXPECT_EQ(found[0].reals[form.valueSize + d], 0);
  expectReals(found[0], reference(form, inputs)[0].reals, 1e-12);
}

TEST(Attention, EvaluationDropsNothing) {
  Form form{.ratio = 0.5, .samples = 2}, plain;
  std::vector<HostTensor> inputs = inputsOf(form);
  Build build = [&](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    auto op = cast<AttentionOp>(attention(form)(b, x));
    return op.evaluationForm(b)[0].getDefiningOp();
  };
  inputs.resize(6);
  auto found = run(build, inputs);
  inputs.resize(3);
  EXPECT_EQ(found[0].reals, run(attention(plain), inputs)[0].reals);
}

std::string text(const std::string &q, const std::string &k, const std::string &v) {
  return "func.func @f(%q: tensor<" + q + ">, %k: tensor<" + k + ">, %v: tensor<" + v +
         ">) { %y, %l = graph.attention %q, %k, %v {scale = 1.0 : f64, "
         "operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<" +
         q + ">, tensor<" + k + ">, tensor<" + v +
         ">) -> (tensor<2x4x3x5xf32>, tensor<2x4x2x3xf32>) return }";
}

TEST(Attention, RefusesOperandsThatDoNotFit) {
  EXPECT_EQ(errorsOf(text("2x4x3x8xf32", "2x2x7x8xf32", "2x2x7x5xf32")), "");
  for (auto [q, k, v] : {std::array{"2x4x3x8xf32", "2x3x7x8xf32", "2x3x7x5xf32"},
                         std::array{"2x4x3x8xf32", "2x2x7x9xf32", "2x2x7x5xf32"},
                         std::array{"2x4x3x8xf32", "2x2x7x8xf32", "2x2x6x5xf32"},
                         std::array{"2x4x3x8xf32", "1x2x7x8xf32", "2x2x7x5xf32"},
                         std::array{"2x4x3x8xf32", "2x2x7x8xbf16", "2x2x7x5xf32"}})
    EXPECT_NE(errorsOf(text(q, k, v)).find("where G divides H"), std::string::npos);
  EXPECT_NE(errorsOf(text("4x3x8xf32", "2x2x7x8xf32", "2x2x7x5xf32")).find("rank 4"),
            std::string::npos);
}

} // namespace
