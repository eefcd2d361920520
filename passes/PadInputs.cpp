#include "passes/PadInputs.h"

#include "ir/TrainingSpec.h"

#include <set>

using namespace mlir;

namespace sluice {

namespace {

LogicalResult checkTarget(func::FuncOp entry, unsigned index) {
  auto labels =
      entry->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>("graph.labels_input");
  bool isTarget = labels && labels.getValue() == argumentName(entry, index);
  if (!isTarget || entry.getArgAttr(index, "graph.ignored"))
    return success();
  return emitError(UnknownLoc::get(entry.getContext()))
         << "'pad' names '" << labels.getValue()
         << "', which the loss compares with: what fills it up would count; a loss with "
            "'ignore_index' leaves it out";
}

} // namespace

LogicalResult markFilled(ModuleOp module, const TrainingSpec &spec) {
  std::set<std::string> inputs;
  for (auto entry : module.getOps<func::FuncOp>())
    for (unsigned i = 0; i < entry.getNumArguments(); ++i) {
      std::string name = argumentName(entry, i).str();
      inputs.insert(name);
      auto found = spec.pad.find(name);
      if (found == spec.pad.end())
        continue;
      if (failed(checkTarget(entry, i)))
        return failure();
      Builder builder(module.getContext());
      entry.setArgAttr(i, "graph.fill", builder.getF64FloatAttr(found->second));
    }
  for (const auto &[name, value] : spec.pad)
    if (!inputs.contains(name)) {
      std::string list;
      for (const std::string &input : inputs)
        list += (list.empty() ? "'" : ", '") + input + "'";
      return emitError(UnknownLoc::get(module.getContext()))
             << "'pad' names '" << name << "', expected an input: " << list;
    }
  return success();
}

} // namespace sluice
