#include "passes/OverlapUpdates.h"

#include "ir/TrainingSpec.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral overlappedAttr = "graph.overlapped";
static constexpr StringLiteral overlap = "overlap";

LogicalResult checkOverlap(ModuleOp module, const TrainingSpec &spec) {
  std::string other = spec.needsAllGradients();
  if (other.empty())
    return success();
  auto refuse = [&](const Twine &mode) {
    return emitError(UnknownLoc::get(module.getContext()))
           << mode << " clashes with '" << other
           << "': it needs the gradients of all groups before the first is updated; "
              "update in 'sync', or clip by group ('clip: {kind: group_norm}')";
  };
  if (spec.update.mode.kind == overlap)
    return refuse("'update.mode: overlap'");
  for (const UpdateGroupRule &rule : spec.update.rules)
    if (rule.mode && rule.mode->kind == overlap)
      return refuse("'mode: overlap' of group '" + rule.name + "' in 'update.grouping'");
  return success();
}

static std::string describe(const TrainingSpec &spec, int64_t count) {
  std::string text = std::to_string(count) + " groups overlap: ";
  if (spec.ranks > 1)
    text += "the sums of each are one message, sent when its last gradient is complete, "
            "and ";
  text += spec.accumulate > 1
              ? "its update runs beside those of others, behind the last micro-batch"
              : "its update runs beside the backward part of others";
  return text + "; no gradient is late";
}

void noteOverlap(ModuleOp module, const TrainingSpec &spec, ArrayRef<UpdateGroup> groups,
                 ArrayRef<graph::ParameterOp> parameters, ArrayRef<int32_t> groupOf) {
  int64_t count =
      llvm::count_if(groups, [](const UpdateGroup &g) { return g.mode == overlap; });
  if (count == 0)
    return;
  Builder builder(module.getContext());
  NamedAttrList members;
  for (auto [parameter, index] : llvm::zip_equal(parameters, groupOf))
    if (graph::ParameterOp op = parameter; index >= 0 && groups[index].mode == overlap)
      members.append(modelName(op.getSymName()), builder.getI64IntegerAttr(index));
  module->setAttr(overlappedAttr, members.getDictionary(module.getContext()));
  report(module, "update: " + describe(spec, count));
}

OverlappedGroups::OverlappedGroups(ModuleOp module) {
  if (auto members = module->getAttrOfType<DictionaryAttr>(overlappedAttr))
    for (NamedAttribute member : members)
      groups[member.getName()] =
          static_cast<int32_t>(cast<IntegerAttr>(member.getValue()).getInt());
}

int32_t OverlappedGroups::of(StringRef symbol) const {
  StringRef name = symbol.split('/').second;
  if (auto found = groups.find(name); found != groups.end())
    return found->second;
  auto found = groups.find(name.rsplit('/').first); // of a moment
  return found == groups.end() ? -1 : found->second;
}

} // namespace sluice
