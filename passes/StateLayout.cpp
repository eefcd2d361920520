#include "passes/StateLayout.h"

#include "ir/graph/Graph.h"
#include "passes/StoredState.h"
#include "passes/UpdateGroups.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

struct Entry {
  graph::ParameterOp op;
  int64_t group = 0; // order of the group
  int kind = 0;      // order in the group
  int64_t index = 0; // order in the module
};

int kindOf(StringRef role) {
  return llvm::StringSwitch<int>(role)
      .Cases("parameter", "buffer", 0)
      .Case("master", 1)
      .Cases("moment", "continual", 2)
      .Case("accumulator", 3)
      .Case("pending", 4)
      .Case("constant", 5)
      .Default(6);
}

/// "NAME" of "param/NAME", "opt/NAME/m", "grad/NAME".
StringRef tensorName(graph::ParameterOp op) {
  StringRef rest = op.getSymName().split('/').second;
  bool hasPart = llvm::is_contained({"moment", "pending", "continual"}, op.getRole());
  return hasPart ? rest.rsplit('/').first : rest;
}

SmallVector<Entry> sortedEntries(ModuleOp module) {
  llvm::StringMap<int64_t> groupByName, groupByTensor;
  SmallVector<Entry> entries;
  int64_t previous = 0; // running statistics follow the parameters before them
  auto groupIndex = [&](StringRef name) {
    return groupByName.try_emplace(name, groupByName.size()).first->second;
  };
  for (auto op : module.getOps<graph::ParameterOp>()) {
    if (op.getRole() == "parameter")
      previous = groupByTensor[tensorName(op)] = groupIndex(op.getGroup().value_or(""));
    entries.push_back({op, previous, kindOf(op.getRole()), int64_t(entries.size())});
  }
  constexpr int64_t noGroup = std::numeric_limits<int64_t>::max();
  for (Entry &entry : entries) {
    StringRef role = entry.op.getRole();
    if (role == "parameter" || role == "buffer")
      continue;
    auto found = groupByTensor.find(tensorName(entry.op));
    entry.group = role == "control" || role == "constant" || found == groupByTensor.end()
                      ? noGroup
                      : found->second;
  }
  llvm::sort(entries, [](const Entry &a, const Entry &b) {
    return std::tuple(a.group, a.kind, a.index) < std::tuple(b.group, b.kind, b.index);
  });
  return entries;
}

/// zeros, fill or file, with what it needs.
void setInitialValue(OperationState &state, graph::ParameterOp op, Builder &builder) {
  double fill = op.getFill().convertToDouble();
  bool uniform = true;
  if (ElementsAttr init = op.getInitAttr()) {
    auto dense = dyn_cast<DenseElementsAttr>(init);
    uniform = dense && dense.isSplat();
    if (uniform && isa<FloatType>(dense.getElementType()))
      fill = dense.getSplatValue<APFloat>().convertToDouble();
    else if (uniform)
      fill = static_cast<double>(dense.getSplatValue<APInt>().getSExtValue());
    else
      state.addAttribute("value", init);
  }
  StringRef kind = !uniform                           ? "file"
                   : fill == 0 && !std::signbit(fill) ? "zeros"
                                                      : "fill";
  state.addAttribute("init", builder.getStringAttr(kind));
  state.addAttribute("fill", builder.getF64FloatAttr(uniform ? fill : 0.0));
}

bool isSaved(graph::ParameterOp op) {
  StringRef role = op.getRole();
  if (role == "control")
    return !op.getSymName().starts_with("control/");
  return role != "constant" && role != "accumulator";
}

plan::StateOp createState(const Entry &entry, int64_t offset, OpBuilder &builder) {
  graph::ParameterOp op = entry.op;
  OperationState state(op.getLoc(), plan::StateOp::getOperationName());
  state.addAttribute("sym_name", op.getSymNameAttr());
  state.addAttribute("type", op.getTypeAttr());
  state.addAttribute("role", op.getRoleAttr());
  state.addAttribute("offset", builder.getI64IntegerAttr(offset));
  state.addAttribute("size",
                     builder.getI64IntegerAttr(plan::tensorBytes(op.getTensorType())));
  if (op.getTrainable())
    state.addAttribute("trainable", builder.getUnitAttr());
  if (isSaved(op))
    state.addAttribute("saved", builder.getUnitAttr());
  if (op.getGroupAttr())
    state.addAttribute("group", op.getGroupAttr());
  for (StringRef name :
       {graph::wholeShapeAttr, graph::shardRowsAttr, storedFormatAttr, valueShapeAttr})
    if (Attribute attr = op->getAttr(name))
      state.addAttribute(name, attr);
  setInitialValue(state, op, builder);
  return cast<plan::StateOp>(builder.create(state));
}

/// The count of updates, which the runtime keeps and checkpoints save. Declared here and
/// not in the graph, where the entry @step has the name.
void createStepCounter(int64_t offset, ModuleOp module, OpBuilder &builder) {
  auto type = RankedTensorType::get({}, builder.getI64Type());
  OperationState state(module.getLoc(), plan::StateOp::getOperationName());
  state.addAttribute("sym_name", builder.getStringAttr("step"));
  state.addAttribute("type", TypeAttr::get(type));
  state.addAttribute("role", builder.getStringAttr("control"));
  state.addAttribute("offset", builder.getI64IntegerAttr(offset));
  state.addAttribute("size", builder.getI64IntegerAttr(plan::tensorBytes(type)));
  state.addAttribute("saved", builder.getUnitAttr());
  builder.create(state);
}

bool isTrained(ModuleOp module) {
  return llvm::any_of(module.getOps<func::FuncOp>(), [](func::FuncOp function) {
    return function.getSymName() == "step" || isUpdateEntry(function.getSymName());
  });
}

} // namespace

void layOutState(ModuleOp module) {
  auto builder = OpBuilder::atBlockBegin(module.getBody());
  int64_t redZone = plan::redZoneOf(module), offset = redZone;
  for (const Entry &entry : sortedEntries(module)) {
    plan::StateOp state = createState(entry, offset, builder);
    offset = llvm::alignTo(offset + int64_t(state.getSize()), lineBytes) + redZone;
    graph::ParameterOp(entry.op).erase();
    builder.setInsertionPointAfter(state);
  }
  if (isTrained(module))
    createStepCounter(offset, module, builder);
}

} // namespace sluice
