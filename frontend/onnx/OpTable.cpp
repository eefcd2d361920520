#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

static OpTable standardTable() {
  OpTable table;
  for (auto add : {addMath, addActivation, addLogic, addReduce, addMatMul, addEinsum, addConv,
                   addPool, addNorm, addSoftmax, addShape, addSlice, addPad, addConstant,
                   addGather, addLoss, addControlFlow, addRandom})
    add(table);
  return table;
}

Handler findHandler(llvm::StringRef domain, llvm::StringRef op) {
  static const OpTable standard = standardTable();
  return domain.empty() ? standard.lookup(op) : nullptr;
}

} // namespace sluice::frontend
