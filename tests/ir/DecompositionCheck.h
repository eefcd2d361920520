#pragma once
// Checks that a composite's decomposition computes what its own reference does.

#include "tests/ir/GraphFixture.h"

namespace sluice::graph {

/// The results with the operation replaced by its decomposition.
inline std::vector<HostTensor> runDecomposed(const Build &build,
                                             const std::vector<HostTensor> &inputs,
                                             Precision precision = Precision::Double) {
  mlir::OwningOpRef<mlir::ModuleOp> module = moduleOf(build, inputs);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  mlir::Operation *end = function.front().getTerminator();
  mlir::Operation *op = end->getOperand(0).getDefiningOp();
  mlir::OpBuilder builder(op);
  llvm::SmallVector<mlir::Value> values = llvm::cast<Decomposable>(op).decompose(builder);
  EXPECT_EQ(values.size(), op->getNumResults());
  end->setOperands(values);
  op->erase();
  EXPECT_TRUE(succeeded(mlir::verify(*module)));
  StateMap state;
  auto results = interpret(function, inputs, state, precision);
  EXPECT_TRUE(succeeded(results));
  return succeeded(results) ? *results : std::vector<HostTensor>();
}

/// Constants of a decomposition are f32, hence the tolerance.
inline void checkDecomposition(const Build &build, const std::vector<HostTensor> &inputs,
                               double tolerance = 1e-6) {
  std::vector<HostTensor> expected = run(build, inputs);
  std::vector<HostTensor> actual = runDecomposed(build, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_EQ(actual[r].shape, expected[r].shape);
    EXPECT_EQ(actual[r].integers, expected[r].integers) << "result " << r;
    expectReals(actual[r], expected[r].reals, tolerance);
  }
}

} // namespace sluice::graph
