#include "passes/StateSymbols.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {

StringRef modelName(StringRef symbol) {
  symbol.consume_front("param/");
  return symbol;
}

StateSymbols::StateSymbols(ModuleOp module) : module(module) {
  for (auto parameter : module.getOps<graph::ParameterOp>()) {
    symbols[parameter.getSymName()] = parameter;
    last = parameter;
  }
}

graph::ParameterOp StateSymbols::declare(StringRef symbol, RankedTensorType type,
                                         StringRef role, StringRef group) {
  if (auto known = symbols.lookup(symbol))
    return known;
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  if (last)
    builder.setInsertionPointAfter(last);
  auto parameter = builder.create<graph::ParameterOp>(
      NameLoc::get(builder.getStringAttr(symbol)), builder.getStringAttr(symbol),
      TypeAttr::get(type), builder.getStringAttr(role), /*trainable=*/UnitAttr(),
      /*init=*/ElementsAttr(), builder.getF64FloatAttr(0),
      group.empty() ? StringAttr() : builder.getStringAttr(group), StringAttr());
  last = parameter;
  symbols[symbol] = parameter;
  return parameter;
}

std::vector<graph::ParameterOp> StateSymbols::parameters() const {
  std::vector<graph::ParameterOp> result;
  for (const auto &entry : symbols)
    if (graph::ParameterOp parameter = entry.second; parameter.getRole() == "parameter")
      result.push_back(parameter);
  llvm::sort(result, [](graph::ParameterOp a, graph::ParameterOp b) {
    return a.getSymName() < b.getSymName();
  });
  return result;
}

EntryReads::EntryReads(func::FuncOp entry, StateSymbols &state)
    : entry(entry), state(state) {
  for (auto read : entry.getBody().front().getOps<graph::ReadOp>())
    values.try_emplace(read.getSymbol(), read.getValue());
}

Value EntryReads::read(graph::ParameterOp parameter) {
  Value &value = values[parameter.getSymName()];
  if (!value) {
    OpBuilder builder = OpBuilder::atBlockBegin(&entry.getBody().front());
    value = builder.create<graph::ReadOp>(parameter.getLoc(), parameter.getTensorType(),
                                          parameter.getSymName());
  }
  return value;
}

Value EntryReads::control(StringRef symbol, Type element, StringRef group) {
  return read(
      state.declare(symbol, RankedTensorType::get({}, element), "control", group));
}

void report(ModuleOp module, const std::string &line) {
  Builder builder(module.getContext());
  SmallVector<Attribute> lines;
  if (auto known = module->getAttrOfType<ArrayAttr>("graph.report"))
    lines.assign(known.begin(), known.end());
  lines.push_back(builder.getStringAttr(line));
  module->setAttr("graph.report", builder.getArrayAttr(lines));
}

void decide(ModuleOp module, StringRef subject, const std::string &why) {
  Builder builder(module.getContext());
  SmallVector<Attribute> pairs;
  if (auto known = module->getAttrOfType<ArrayAttr>("graph.decisions"))
    pairs.assign(known.begin(), known.end());
  pairs.push_back(builder.getStrArrayAttr({subject, why}));
  module->setAttr("graph.decisions", builder.getArrayAttr(pairs));
}

} // namespace sluice
