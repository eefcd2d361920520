#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

static OpTable standardTable() {
  OpTable table;
  for (auto add : {addMath,    addActivation, addLogic,       addReduce,      addMatMul,
                   addEinsum,  addConv,       addPool,        addPoolIndices, addNorm,
                   addSoftmax, addShape,      addSlice,       addPad,         addConstant,
                   addGather,  addSort,       addResize,      addGridSample,  addLoss,
                   addRnn,     addAttention,  addControlFlow, addRandom,      addQuantize,
                   addSignal})
    add(table);
  return table;
}

static OpTable microsoftTable() {
  OpTable table;
  addMicrosoft(table);
  return table;
}

Handler findHandler(llvm::StringRef domain, llvm::StringRef op) {
  static const OpTable standard = standardTable();
  static const OpTable microsoft = microsoftTable();
  if (domain.empty())
    return standard.lookup(op);
  return domain == "com.microsoft" ? microsoft.lookup(op) : nullptr;
}

} // namespace sluice::frontend
