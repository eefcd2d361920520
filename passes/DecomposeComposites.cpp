// DecomposeComposites: softmax, normalisations, losses, dropout, optimizers become core
// operations, from which regions are formed. After the gradients are built, since
// composites have better gradients of their own.

#include "passes/DecomposeComposites.h"
#include "passes/Passes.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_DECOMPOSECOMPOSITES
#include "passes/Passes.h.inc"
namespace {

struct DecomposeComposites : impl::DecomposeCompositesBase<DecomposeComposites> {
  void runOnOperation() override {
    if (failed(decomposeComposites(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult decomposeComposites(Operation *root) {
  // A decomposition may use simpler composites, so what it builds is visited too.
  SmallVector<Operation *> open;
  root->walk([&](graph::Decomposable op) { open.push_back(op); });
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    OpBuilder builder(op);
    Operation *before = op->getPrevNode();
    SmallVector<Value> results = cast<graph::Decomposable>(op).decompose(builder);
    if (results.size() != op->getNumResults())
      return op->emitError("'") << op->getName() << "' decomposes to " << results.size()
                                << " values, expected " << op->getNumResults();
    Operation *first = before ? before->getNextNode() : &op->getBlock()->front();
    for (Operation *built = first; built != op; built = built->getNextNode())
      if (isa<graph::Decomposable>(built))
        open.push_back(built);
    op->replaceAllUsesWith(results);
    op->erase();
  }
  return success();
}

std::unique_ptr<Pass> createDecomposeComposites() {
  return std::make_unique<DecomposeComposites>();
}
} // namespace sluice
