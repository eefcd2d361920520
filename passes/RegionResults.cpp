#include "passes/RegionResults.h"

#include "passes/RegionDomain.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace sluice {

graph::RegionOp keepResults(graph::RegionOp region, ArrayRef<unsigned> numbers) {
  OpBuilder builder(region);
  auto copy = cast<graph::RegionOp>(builder.clone(*region));
  SmallVector<Type> types;
  for (unsigned i : numbers)
    types.push_back(region.getResult(i).getType());
  auto smaller = builder.create<graph::RegionOp>(region.getLoc(), types, copy.getInputs(),
                                                 region.getKernelAttr());
  smaller->setDiscardableAttrs(region->getDiscardableAttrDictionary());
  smaller.getBody().takeBody(copy.getBody());
  copy.erase();
  Block &body = smaller.getBody().front();
  Operation *yield = body.getTerminator();
  SmallVector<Value> yielded;
  for (unsigned i : numbers)
    yielded.push_back(yield->getOperand(i));
  yield->setOperands(yielded);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
  for (unsigned i = body.getNumArguments(); i-- > 0;)
    if (body.getArgument(i).use_empty())
      body.eraseArgument(i), smaller->eraseOperand(i);
  if (succeeded(analyseRegion(smaller)))
    return smaller;
  smaller.erase();
  return nullptr;
}

void dropUnusedResults(graph::RegionOp region) {
  SmallVector<unsigned> used;
  for (OpResult result : region->getResults())
    if (!result.use_empty())
      used.push_back(result.getResultNumber());
  if (used.size() == region.getNumResults())
    return;
  graph::RegionOp smaller = keepResults(region, used);
  if (!smaller)
    return;
  for (auto [i, result] : llvm::zip_equal(used, smaller->getResults()))
    region.getResult(i).replaceAllUsesWith(result);
  region.erase();
}

SmallVector<Value> sourcesOf(OpResult result) {
  auto region = dyn_cast<graph::RegionOp>(result.getOwner());
  if (!region)
    return llvm::to_vector(result.getOwner()->getOperands());
  SmallVector<Value> sources;
  llvm::SmallPtrSet<Value, 16> seen;
  Operation *yield = region.getBody().front().getTerminator();
  SmallVector<Value> open{yield->getOperand(result.getResultNumber())};
  while (!open.empty()) {
    Value value = open.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value))
      sources.push_back(region.getInputs()[argument.getArgNumber()]);
    else
      llvm::append_range(open, value.getDefiningOp()->getOperands());
  }
  return sources;
}

} // namespace sluice
