// State, constants, regions and whole functions: verifiers and the interpreter.
#include "tests/ir/GraphFixture.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"

namespace sluice::graph {
namespace {

mlir::OwningOpRef<mlir::ModuleOp> parse(llvm::StringRef text) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context());
  EXPECT_TRUE(module);
  return module;
}

// --- verifiers

TEST(State, ParameterErrors) {
  EXPECT_ERROR(errorsOf("graph.parameter @p : tensor<2xf32> \"weight\""),
               "'p' has role 'weight', expected parameter, buffer, moment");
  EXPECT_ERROR(errorsOf("graph.parameter @p : f32 \"parameter\""),
               "'p' has type 'f32', expected a tensor of static shape");
  EXPECT_ERROR(errorsOf("graph.parameter @p : tensor<2xf32> \"parameter\" {init = "
                        "dense<0.0> : tensor<3xf32>}"),
               "has an initial value of type 'tensor<3xf32>', expected 'tensor<2xf32>'");
  EXPECT_ERROR(errorsOf("graph.parameter @p : tensor<2xf32> \"buffer\" {trainable}"),
               "'p' with role 'buffer' is trainable, expected role 'parameter'");
}

TEST(State, ReadAndWriteErrors) {
  EXPECT_ERROR(errorsOf("func.func @f() { %x = graph.read @p : tensor<2xf32>  return }"),
               "names 'p', expected the symbol of a 'graph.parameter' of this module");
  const std::string parameter = "graph.parameter @p : tensor<2xf32> \"parameter\"\n";
  EXPECT_ERROR(errorsOf(parameter +
                        "func.func @f() { %x = graph.read @p : tensor<3xf32>  return }"),
               "has type 'tensor<3xf32>', expected 'tensor<2xf32>' (type of 'p')");
  EXPECT_ERROR(errorsOf(parameter + "func.func @f(%x: tensor<3xf32>) { graph.write @p, "
                                    "%x : tensor<3xf32>  return }"),
               "has type 'tensor<3xf32>', expected 'tensor<2xf32>' (type of 'p')");
  EXPECT_ERROR(
      errorsOf(parameter +
               "func.func @f(%x: tensor<2xf32>) { graph.write @p, %x : tensor<2xf32>\n"
               "graph.write @p, %x : tensor<2xf32>  return }"),
      "writes 'p' again, expected one write per entry");
}

std::string region(const std::string &body,
                   const std::string &outputs = "tensor<2xf32>") {
  return "graph.parameter @p : tensor<2xf32> \"parameter\"\n"
         "func.func @f(%x: tensor<2xf32>, %z: tensor<2xf32>) {\n"
         "  %y = graph.region (%x) {\n  ^bb0(%a: tensor<2xf32>):\n    " +
         body + "\n  } : (tensor<2xf32>) -> " + outputs + "\n  return\n}";
}

TEST(State, RegionErrors) {
  EXPECT_EQ(errorsOf(region("graph.yield %a : tensor<2xf32>")), "");
  EXPECT_ERROR(errorsOf(region("graph.yield %a : tensor<2xf32>", "tensor<3xf32>")),
               "yielded value 0 has type 'tensor<2xf32>', expected 'tensor<3xf32>' (type "
               "of output 0)");
  EXPECT_ERROR(errorsOf(region("graph.yield")),
               "has 0 yielded values, expected 1 (one per output)");
  EXPECT_ERROR(
      errorsOf(region(
          "%b = graph.add %a, %z : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
          "graph.yield %b : tensor<2xf32>")),
      "uses a value from outside the region as operand 1, expected an input of "
      "'graph.region'");
  EXPECT_ERROR(
      errorsOf(
          region("%b = graph.read @p : tensor<2xf32>\n graph.yield %b : tensor<2xf32>")),
      "reads or writes state inside 'graph.region'");
  EXPECT_ERROR(errorsOf("func.func @f(%x: tensor<2xf32>) {\n  graph.region (%x) {\n    "
                        "graph.yield\n  } : "
                        "(tensor<2xf32>) -> ()\n  return\n}"),
               "has 0 block arguments, expected 1 (one per input)");
}

TEST(State, RoundTripsThroughText) {
  auto module = parse(region("%b = graph.neg %a : (tensor<2xf32>) -> tensor<2xf32>\n"
                             "graph.yield %b : tensor<2xf32>"));
  std::string printed, again;
  llvm::raw_string_ostream(printed) << *module;
  llvm::raw_string_ostream(again) << *parse(printed);
  EXPECT_EQ(printed, again);
}

// --- host tensors

TEST(State, HostTensorsFromAttributes) {
  mlir::OpBuilder b(&context());
  auto values = [&](const char *text) {
    auto attribute =
        llvm::dyn_cast<mlir::ElementsAttr>(mlir::parseAttribute(text, &context()));
    return *HostTensor::fromAttribute(attribute);
  };
  expectReals(values("dense<[1.5, -2.0]> : tensor<2xf32>"), {1.5, -2});
  expectReals(values("dense<0.5> : tensor<3xf64>"), {0.5, 0.5, 0.5});
  expectReals(values("dense<[1.0, -3.0]> : tensor<2xf16>"), {1, -3});
  expectReals(values("dense<3.0> : tensor<2xbf16>"), {3, 3});
  using List = std::vector<int64_t>;
  EXPECT_EQ(values("dense<[true, false, true]> : tensor<3xi1>").integers,
            (List{1, 0, 1}));
  EXPECT_EQ(values("dense<true> : tensor<2xi1>").integers, (List{1, 1}));
  EXPECT_EQ(values("dense<[-1, 2]> : tensor<2xi8>").integers, (List{-1, 2}));
  EXPECT_EQ(values("dense<-5> : tensor<2xi32>").integers, (List{-5, -5}));
  EXPECT_EQ(values("dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>").integers,
            (List{1, 2, 3, 4}));
}

TEST(State, ResourceConstants) {
  const float values[] = {1, 2.5};
  auto type = mlir::RankedTensorType::get({2}, mlir::Float32Type::get(&context()));
  auto attribute = mlir::DenseResourceElementsAttr::get(
      type, "state-test",
      mlir::HeapAsmResourceBlob::allocateAndCopyInferAlign(llvm::ArrayRef(values)));
  Build constant = [&](mlir::OpBuilder &b,
                       llvm::ArrayRef<mlir::Value>) -> mlir::Operation * {
    return b.create<ConstantOp>(b.getUnknownLoc(), attribute);
  };
  expectReals(run(constant, {})[0], {1, 2.5});
}

// --- runs

TEST(Interpreter, ReadsSeeTheStateBeforeTheRun) {
  auto module = parse(R"(
    graph.parameter @w : tensor<2xf32> "parameter" {init = dense<[1.0, 2.0]> : tensor<2xf32>, trainable}
    graph.parameter @n : tensor<i64> "control" {fill = 3.0 : f64}
    func.func @step(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<i64>) {
      %w = graph.read @w : tensor<2xf32>
      %y = graph.add %w, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      graph.write @w, %y : tensor<2xf32>
      %again = graph.read @w : tensor<2xf32>
      %n = graph.read @n : tensor<i64>
      return %again, %n : tensor<2xf32>, tensor<i64>
    })");
  mlir::FailureOr<StateMap> state = initialState(*module);
  ASSERT_TRUE(succeeded(state));
  auto step = module->lookupSymbol<mlir::func::FuncOp>("step");
  auto first = interpret(step, {real({2}, {10, 20})}, *state, Precision::Double);
  ASSERT_TRUE(succeeded(first));
  expectReals((*first)[0], {1, 2});
  EXPECT_EQ((*first)[1].integers[0], 3);
  expectReals((*state)["w"], {11, 22});
  ASSERT_TRUE(succeeded(interpret(step, {real({2}, {1, 1})}, *state, Precision::Double)));
  expectReals((*state)["w"], {12, 23});
}

TEST(Interpreter, RunsRegionsAsIfInline) {
  auto module = parse(R"(
    func.func @f(%x: tensor<2xf32>, %z: tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>) {
      %y, %s = graph.region (%x, %z) {
      ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
        %c = graph.mul %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        %d = graph.reduce %c {kind = "sum", axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
        graph.yield %c, %d : tensor<2xf32>, tensor<f32>
      } : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>)
      %twice = graph.add %y, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %twice, %s : tensor<2xf32>, tensor<f32>
    })");
  StateMap state;
  auto results =
      interpret(module->lookupSymbol<mlir::func::FuncOp>("f"),
                {real({2}, {2, 3}), real({2}, {5, 7})}, state, Precision::Single);
  ASSERT_TRUE(succeeded(results));
  expectReals((*results)[0], {12, 24});
  expectReals((*results)[1], {31});
}

/// Errors while running @f of the text.
std::string errorsOfRun(const char *text, const std::vector<HostTensor> &inputs) {
  auto module = parse(text);
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &diagnostic) {
    messages += diagnostic.str();
    return mlir::success();
  });
  StateMap state;
  EXPECT_TRUE(failed(interpret(module->lookupSymbol<mlir::func::FuncOp>("f"), inputs,
                               state, Precision::Double)));
  return messages;
}

TEST(Interpreter, Errors) {
  const char *identity =
      "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }";
  EXPECT_ERROR(errorsOfRun(identity, {}), "was given 0 inputs, expected 1");
  EXPECT_ERROR(
      errorsOfRun(identity, {real({3}, {1, 2, 3})}),
      "was given input 0 of shape [3] and element type 'f32', expected 'tensor<2xf32>'");
  EXPECT_ERROR(
      errorsOfRun("graph.parameter @p : tensor<2xf32> \"parameter\"\n"
                  "func.func @f() { %x = graph.read @p : tensor<2xf32>  return }",
                  {}),
      "reads 'p', which the state given does not hold");
  EXPECT_ERROR(errorsOfRun("func.func private @g()\n"
                           "func.func @f() { func.call @g() : () -> ()  return }",
                           {}),
               "cannot be interpreted, expected operations of the graph dialect");
}

} // namespace
} // namespace sluice::graph
