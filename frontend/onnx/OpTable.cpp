#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

static OpTable standardTable() {
  OpTable table;
  for (auto add :
       {addMath,    addActivation,  addLogic,       addReduce,      addMatMul,
        addEinsum,  addConv,        addPool,        addPoolIndices, addNorm,
        addSoftmax, addShape,       addSlice,       addPad,         addConstant,
        addGather,  addSort,        addResize,      addGridSample,  addLoss,
        addRnn,     addAttention,   addControlFlow, addRandom,      addQuantize,
        addSignal,  addDeterminant, addRoi,         addBlocks,      addKnown,
        addNGrams,  addSequence})
    add(table);
  return table;
}

static OpTable microsoftTable() {
  OpTable table;
  addMicrosoft(table);
  return table;
}

std::string unknownReason(const onnx::NodeProto &node) {
  llvm::StringRef op = node.op_type();
  if (node.domain() == "ai.onnx.ml")
    return "not trainable";
  if (node.domain() == "com.microsoft" &&
      (op.ends_with("Grad") || op.starts_with("InPlaceAccumulator")))
    return "part of a graph of gradients (a training model of ONNX Runtime); they are "
           "built by `compile`: give the forward or the eval model";
  return "not supported yet";
}

Handler findHandler(llvm::StringRef domain, llvm::StringRef op) {
  static const OpTable standard = standardTable();
  if (domain.empty())
    return standard.lookup(op);
  if (domain != "com.microsoft")
    return nullptr;
  static const OpTable microsoft = microsoftTable(); // asks for standard operators
  return microsoft.lookup(op);
}

std::vector<std::string> operatorNames(llvm::StringRef domain) {
  OpTable table = domain.empty() ? standardTable() : microsoftTable();
  std::vector<std::string> names;
  for (auto &entry : table)
    names.push_back(entry.getKey().str());
  llvm::sort(names);
  return names;
}

} // namespace sluice::frontend
