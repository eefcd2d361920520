#include "passes/EntryFunctions.h"

#include "ir/graph/GraphBuilder.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral nameAttribute = "graph.name";

StringRef argumentName(func::FuncOp entry, unsigned index) {
  auto name = entry.getArgAttrOfType<StringAttr>(index, nameAttribute);
  return name ? name.getValue() : StringRef();
}

StringRef resultName(func::FuncOp entry, unsigned index) {
  auto name = entry.getResultAttrOfType<StringAttr>(index, nameAttribute);
  return name ? name.getValue() : StringRef();
}

std::vector<NamedValue> results(func::FuncOp entry) {
  std::vector<NamedValue> values;
  for (auto [i, value] : llvm::enumerate(returnOf(entry).getOperands()))
    values.push_back({resultName(entry, i).str(), value});
  return values;
}

Value resultNamed(func::FuncOp entry, StringRef name) {
  for (const NamedValue &result : results(entry))
    if (result.name == name)
      return result.value;
  return nullptr;
}

void setResults(func::FuncOp entry, const std::vector<NamedValue> &values) {
  Builder builder(entry.getContext());
  SmallVector<Value> operands;
  SmallVector<DictionaryAttr> attributes;
  for (const NamedValue &result : values) {
    operands.push_back(result.value);
    auto name = builder.getNamedAttr(nameAttribute, builder.getStringAttr(result.name));
    attributes.push_back(builder.getDictionaryAttr(name));
  }
  func::ReturnOp terminator = returnOf(entry);
  terminator->setOperands(operands);
  FunctionType type = entry.getFunctionType();
  // The old attributes would be kept for results that move.
  entry.removeResAttrsAttr();
  entry.setType(
      builder.getFunctionType(type.getInputs(), ValueRange(operands).getTypes()));
  entry.setAllResultAttrs(ArrayRef<DictionaryAttr>(attributes));
}

func::FuncOp copyEntry(func::FuncOp from, StringRef name) {
  func::FuncOp copy = from.clone();
  copy.setSymName(name);
  auto module = from->getParentOfType<ModuleOp>();
  module.push_back(copy);
  return copy;
}

func::FuncOp createEntry(ModuleOp module, StringRef name) {
  auto builder = OpBuilder::atBlockEnd(module.getBody());
  auto entry = builder.create<func::FuncOp>(NameLoc::get(builder.getStringAttr(name)),
                                            name, builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(entry.addEntryBlock());
  builder.create<func::ReturnOp>(entry.getLoc());
  return entry;
}

void useEvaluationForms(func::FuncOp entry) {
  SmallVector<graph::TrainingMode> training;
  entry.walk([&](graph::TrainingMode op) { training.push_back(op); });
  for (graph::TrainingMode op : training) {
    OpBuilder builder(op);
    for (auto [result, form] : llvm::zip(op->getResults(), op.evaluationForm(builder)))
      if (result != form) // what has no other form stays
        result.replaceAllUsesWith(form);
  }
  OpBuilder builder = OpBuilder::atBlockBegin(&entry.getBody().front());
  for (BlockArgument argument : entry.getArguments())
    if (auto fill = entry.getArgAttrOfType<FloatAttr>(argument.getArgNumber(),
                                                      evaluationFillAttr);
        fill && !argument.use_empty()) {
      graph::GraphBuilder b(argument.getLoc(), builder);
      argument.replaceAllUsesWith(b.splatLike(argument, fill.getValueAsDouble()));
    }
}

void eraseDead(func::FuncOp entry) {
  Block &body = entry.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
  llvm::BitVector unused(entry.getNumArguments());
  for (BlockArgument argument : entry.getArguments())
    if (argument.use_empty())
      unused.set(argument.getArgNumber());
  entry.eraseArguments(unused);
}

} // namespace sluice
