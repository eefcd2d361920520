#pragma once
// Checks what `buildGradient` writes against central differences in double precision.

#include "tests/ir/GraphFixture.h"

#include <cmath>

namespace sluice::graph {

struct GradientCheckOptions {
  double step = 1e-6;        // times max(1, |x|)
  double tolerance = 1e-7;   // times max(1, |expected|)
  std::vector<bool> perturb; // by input; all floating-point ones where empty
};

/// The cotangents of the inputs, for given cotangents of the results (null ones are left
/// out of the gradient). Inputs that are integers or without gradient give zeros. Fails
/// the test where the gradient cannot be built.
inline std::vector<HostTensor>
gradientsOf(const Build &build, const std::vector<HostTensor> &inputs,
            const std::vector<const HostTensor *> &cotangents) {
  mlir::OwningOpRef<mlir::ModuleOp> module = moduleOf(build, inputs);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  mlir::Block &body = function.front();
  mlir::Operation *op = body.getTerminator()->getOperand(0).getDefiningOp();
  mlir::Location loc = op->getLoc();
  llvm::SmallVector<mlir::Value> arguments(function.getArguments()), resultCotangents;
  std::vector<HostTensor> all = inputs;
  for (const HostTensor *cotangent : cotangents) {
    resultCotangents.push_back(cotangent ? body.addArgument(typeOf(*cotangent), loc)
                                         : nullptr);
    if (cotangent)
      all.push_back(*cotangent);
  }

  llvm::SmallVector<bool> needed;
  for (mlir::Value operand : op->getOperands())
    needed.push_back(llvm::isa<mlir::FloatType>(tensorType(operand).getElementType()));
  GradientContext gradient(resultCotangents, needed);
  mlir::OpBuilder builder(body.getTerminator());
  auto differentiable = llvm::dyn_cast<Differentiable>(op);
  if (!differentiable || failed(differentiable.buildGradient(builder, gradient))) {
    ADD_FAILURE() << op->getName().getStringRef().str() << " has no gradient";
    return {};
  }

  llvm::SmallVector<mlir::Value> results;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    mlir::Value total;
    for (auto [j, operand] : llvm::enumerate(op->getOperands()))
      if (operand == argument && gradient.gradients()[j]) {
        mlir::Value part = gradient.gradients()[j];
        EXPECT_EQ(part.getType(), argument.getType())
            << "type of the gradient of operand " << j;
        total = total ? builder.create<AddOp>(loc, total, part).getY() : part;
      }
    if (!total) {
      mlir::Attribute zero = builder.getZeroAttr(tensorType(argument).getElementType());
      total = builder.create<ConstantOp>(
          loc, mlir::DenseElementsAttr::get(tensorType(argument), zero));
    }
    results.push_back(total);
  }
  body.getTerminator()->setOperands(results);
  function.setType(builder.getFunctionType(body.getArgumentTypes(),
                                           mlir::ValueRange(results).getTypes()));
  EXPECT_TRUE(succeeded(mlir::verify(*module)));
  StateMap state;
  auto values = interpret(function, all, state, Precision::Double);
  EXPECT_TRUE(succeeded(values));
  return succeeded(values) ? *values : std::vector<HostTensor>();
}

/// Sum over results of cotangent times value.
inline double weightedSum(const std::vector<HostTensor> &values,
                          const std::vector<const HostTensor *> &cotangents) {
  double sum = 0;
  for (size_t r = 0; r < values.size(); ++r)
    for (size_t i = 0; cotangents[r] && i < values[r].reals.size(); ++i)
      sum += values[r].reals[i] * cotangents[r]->reals[i];
  return sum;
}

/// Compares the gradient of one weighting of the results with central differences.
inline void compareWithDifferences(const Build &build,
                                   const std::vector<HostTensor> &inputs,
                                   const std::vector<const HostTensor *> &cotangents,
                                   const GradientCheckOptions &options) {
  std::vector<HostTensor> gradients = gradientsOf(build, inputs, cotangents);
  mlir::OwningOpRef<mlir::ModuleOp> module = moduleOf(build, inputs);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  auto lossAt = [&](const std::vector<HostTensor> &point) {
    StateMap state;
    auto values = interpret(function, point, state, Precision::Double);
    EXPECT_TRUE(succeeded(values));
    return succeeded(values) ? weightedSum(*values, cotangents) : std::nan("");
  };
  ASSERT_EQ(gradients.size(), inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].isReal() || (!options.perturb.empty() && !options.perturb[k]))
      continue;
    for (size_t i = 0; i < inputs[k].reals.size(); ++i) {
      std::vector<HostTensor> above = inputs, below = inputs;
      const double x = inputs[k].reals[i], h = options.step * std::max(1.0, std::fabs(x));
      above[k].reals[i] = x + h;
      below[k].reals[i] = x - h;
      const double expected =
          (lossAt(above) - lossAt(below)) / (above[k].reals[i] - below[k].reals[i]);
      EXPECT_NEAR(gradients[k].reals[i], expected,
                  options.tolerance * std::max(1.0, std::fabs(expected)))
          << "input " << k << " element " << i;
    }
  }
}

/// The gradient of the operation in all floating-point inputs against central
/// differences, for random cotangents of all results together and, where there are
/// several, of each alone.
inline void checkGradient(const Build &build, const std::vector<HostTensor> &inputs,
                          GradientCheckOptions options = {}) {
  std::vector<HostTensor> values = run(build, inputs);
  std::vector<HostTensor> weights;
  for (size_t r = 0; r < values.size(); ++r)
    weights.push_back(uniform(values[r].shape, -1, 1, 100 + r));
  std::vector<const HostTensor *> cotangents;
  for (size_t r = 0; r < values.size(); ++r) {
    weights[r].elementType = values[r].elementType;
    cotangents.push_back(values[r].isReal() ? &weights[r] : nullptr);
  }
  compareWithDifferences(build, inputs, cotangents, options);
  const size_t reals =
      llvm::count_if(values, [](const HostTensor &v) { return v.isReal(); });
  for (size_t r = 0; reals > 1 && r < values.size(); ++r) {
    if (!cotangents[r])
      continue;
    std::vector<const HostTensor *> alone(values.size(), nullptr);
    alone[r] = cotangents[r];
    compareWithDifferences(build, inputs, alone, options);
  }
}

} // namespace sluice::graph
