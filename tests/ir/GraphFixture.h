#pragma once
// Small graph functions for tests: built from a lambda, run by the interpreter.

#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace sluice::graph {

using Shape = std::vector<int64_t>;
/// Builds the operation under test from the function's arguments.
using Build =
    std::function<mlir::Operation *(mlir::OpBuilder &, llvm::ArrayRef<mlir::Value>)>;

inline mlir::MLIRContext &context() {
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registry.insert<GraphDialect, mlir::func::FuncDialect>();
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  context.loadAllAvailableDialects();
  return context;
}

// --- host tensors

inline HostTensor real(Shape shape, std::vector<double> values) {
  HostTensor tensor{
      mlir::Float32Type::get(&context()), std::move(shape), std::move(values), {}};
  EXPECT_EQ(tensor.size(), static_cast<int64_t>(tensor.reals.size()));
  return tensor;
}

inline HostTensor integer(Shape shape, std::vector<int64_t> values, unsigned width = 64) {
  HostTensor tensor{
      mlir::IntegerType::get(&context(), width), std::move(shape), {}, std::move(values)};
  EXPECT_EQ(tensor.size(), static_cast<int64_t>(tensor.integers.size()));
  return tensor;
}

/// Uniform in [low, high), the same values for the same seed.
inline HostTensor uniform(Shape shape, double low = -1, double high = 1,
                          unsigned seed = 1) {
  std::mt19937 generator(seed);
  HostTensor tensor{mlir::Float32Type::get(&context()), std::move(shape), {}, {}};
  for (int64_t i = 0, e = tensor.size(); i < e; ++i)
    tensor.reals.push_back(low + (high - low) * (generator() * 0x1p-32));
  return tensor;
}

/// Distinct values in random order, `gap` apart: no ties, also under small perturbations.
inline HostTensor distinct(Shape shape, double gap = 0.25, unsigned seed = 1) {
  HostTensor tensor = uniform(std::move(shape));
  const int64_t count = tensor.size();
  for (int64_t i = 0; i < count; ++i)
    tensor.reals[i] = gap * (i - count / 2) + gap / 3;
  std::mt19937 generator(seed);
  for (int64_t i = count; i-- > 1;)
    std::swap(tensor.reals[i], tensor.reals[generator() % (i + 1)]);
  return tensor;
}

inline mlir::RankedTensorType typeOf(const HostTensor &tensor) {
  return mlir::RankedTensorType::get(tensor.shape, tensor.elementType);
}

// --- functions

/// A module with one function @f whose results are those of the operation built, or null
/// results on error.
inline mlir::OwningOpRef<mlir::ModuleOp> moduleOf(const Build &build,
                                                  const std::vector<HostTensor> &inputs) {
  mlir::OpBuilder builder(&context());
  mlir::Location loc = builder.getUnknownLoc();
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  llvm::SmallVector<mlir::Type> types;
  for (const HostTensor &input : inputs)
    types.push_back(typeOf(input));
  builder.setInsertionPointToEnd(module->getBody());
  auto function =
      builder.create<mlir::func::FuncOp>(loc, "f", builder.getFunctionType(types, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  llvm::SmallVector<mlir::Value> arguments(function.getArguments());
  mlir::Operation *op = build(builder, arguments);
  builder.create<mlir::func::ReturnOp>(loc, op->getResults());
  function.setType(builder.getFunctionType(types, op->getResultTypes()));
  return module;
}

/// The results of the operation; a failed test and nothing on error.
inline std::vector<HostTensor> run(const Build &build,
                                   const std::vector<HostTensor> &inputs,
                                   Precision precision = Precision::Double) {
  mlir::OwningOpRef<mlir::ModuleOp> module = moduleOf(build, inputs);
  EXPECT_TRUE(succeeded(mlir::verify(*module)));
  StateMap state;
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  auto results = interpret(function, inputs, state, precision);
  EXPECT_TRUE(succeeded(results));
  return succeeded(results) ? *results : std::vector<HostTensor>();
}

inline Shape shapeOf(const HostTensor &tensor) { return tensor.shape; }

inline void expectReals(const HostTensor &tensor, const std::vector<double> &expected,
                        double tolerance = 1e-12) {
  ASSERT_EQ(tensor.reals.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    if (std::isnan(expected[i]) || std::isinf(expected[i]))
      EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(tensor.reals[i])
                                          : tensor.reals[i] == expected[i])
          << "element " << i << " is " << tensor.reals[i];
    else
      EXPECT_NEAR(tensor.reals[i], expected[i], tolerance) << "element " << i;
}

// --- errors

/// The messages of all errors while parsing and verifying, joined by newlines; empty
/// where all is well.
inline std::string errorsOf(llvm::StringRef text) {
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &diagnostic) {
    messages += diagnostic.str() + "\n";
    return mlir::success();
  });
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context());
  EXPECT_EQ(!module, !messages.empty());
  return messages;
}

/// Errors of one operation in generic form: `arguments` are "%a: tensor<...>", the
/// operation ends in its type.
inline std::string errorsOfOp(const std::string &arguments, const std::string &op) {
  return errorsOf("func.func @f(" + arguments + ") {\n  " + op + "\n  return\n}");
}

#define EXPECT_ERROR(MESSAGES, PART)                                                     \
  EXPECT_NE((MESSAGES).find(PART), std::string::npos) << "got: " << (MESSAGES)

} // namespace sluice::graph
