// Puts trainable parameters into the groups that updates, messages of ranks and formats
// follow: by the topology of @forward (planning/Grouping.h), or by rules of the spec.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/LaunchCosts.h"
#include "passes/NamePatterns.h"
#include "passes/OverlapUpdates.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"
#include "passes/UpdateModes.h"
#include "passes/planning/Grouping.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_GROUPPARAMETERS
#include "passes/Passes.h.inc"

namespace {

/// @forward as a grouping problem. What is computed from parameters alone (a transpose, a
/// cast) belongs to what uses it.
class ForwardTopology {
public:
  ForwardTopology(func::FuncOp forward, ArrayRef<graph::ParameterOp> trainable,
                  const DeviceRates &rates)
      : rates(rates) {
    for (auto [index, parameter] : llvm::enumerate(trainable)) {
      graph::ParameterOp op = parameter;
      indices[op.getSymName()] = static_cast<int32_t>(index);
      RankedTensorType type = op.getTensorType();
      problem.parameters.push_back({plan::tensorBytes(type), type.getRank() < 2});
    }
    for (Operation &op : forward.getBody().front().without_terminator())
      add(&op);
  }

  GroupingProblem problem;

private:
  using Parameters = llvm::SmallSetVector<int32_t, 2>;

  void add(Operation *op) {
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      Parameters &own = derived[read.getValue()];
      if (auto found = indices.find(read.getSymbol()); found != indices.end())
        own.insert(found->second);
      return;
    }
    if (op->getNumResults() == 0)
      return;
    Parameters parameters;
    bool fromState = true, carries = false;
    for (Value operand : op->getOperands()) {
      if (auto found = derived.find(operand); found != derived.end())
        parameters.insert(found->second.begin(), found->second.end());
      else
        fromState = false;
      carries |= carrying.contains(operand);
    }
    if (fromState) { // constants too
      for (Value result : op->getResults())
        derived[result] = parameters;
      return;
    }
    addNode(op, parameters, carries);
  }

  void addNode(Operation *op, const Parameters &parameters, bool carries) {
    GroupingProblem::Node node;
    node.parameters.assign(parameters.begin(), parameters.end());
    // A gradient of each factor that has one costs about what the product does.
    int gradients = (carries ? 1 : 0) + (parameters.empty() ? 0 : 1);
    node.backwardUs = gradients * operationUs(op, rates);
    for (Value operand : op->getOperands())
      if (auto found = values.find(operand); found != values.end())
        node.inputs.push_back(found->second);
    for (Value result : op->getResults()) {
      auto type = cast<RankedTensorType>(result.getType());
      bool flows = gradients > 0 && isa<FloatType>(type.getElementType());
      if (flows)
        carrying.insert(result);
      values[result] = static_cast<int32_t>(problem.values.size());
      node.outputs.push_back(values[result]);
      problem.values.push_back({plan::tensorBytes(type), flows});
    }
    problem.nodes.push_back(std::move(node));
  }

  const DeviceRates &rates;
  llvm::StringMap<int32_t> indices;
  llvm::DenseMap<Value, Parameters> derived; // from state and constants alone
  llvm::DenseMap<Value, int32_t> values;
  llvm::DenseSet<Value> carrying;
};

std::string percent(double share) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.1f%%", 100 * share);
  return text;
}

class GroupParameters : public impl::GroupParametersBase<GroupParameters> {
public:
  explicit GroupParameters(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!llvm::is_contained(spec.entries, "step"))
      return;
    if (failed(checkUpdateModes(getOperation(), spec)) ||
        failed(checkOverlap(getOperation(), spec)))
      return signalPassFailure();
    if (!spec.update.hasGroups() && !spec.update.isStaggered())
      return;
    StateSymbols state(getOperation());
    for (graph::ParameterOp parameter : state.parameters())
      if (parameter.getTrainable())
        trainable.push_back(parameter);
    if (trainable.empty())
      return; // build-backward says so
    LogicalResult done = spec.update.byTopology    ? byTopology()
                         : spec.update.hasGroups() ? byRules()
                                                   : asOne();
    if (failed(done))
      signalPassFailure();
  }

private:
  LogicalResult byTopology() {
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    DeviceRates rates = deviceRates(getOperation());
    ForwardTopology topology(forward, trainable, rates);
    GroupingProblem &problem = topology.problem;
    problem.groups = static_cast<int32_t>(spec.update.groups);
    if (problem.groups == 0)
      problem.groupSize = static_cast<int32_t>(spec.update.groupSize);
    Grouping grouping = groupByTopology(problem);
    if (!grouping.error.empty())
      return getOperation().emitError("update.grouping: ") << grouping.error;
    std::vector<UpdateGroup> groups(grouping.groups.size());
    for (auto [index, group] : llvm::enumerate(groups)) {
      group.name = std::to_string(index);
      group.bytes = grouping.groups[index].bytes;
      group.us = grouping.groups[index].us;
      group.blocks = grouping.groups[index].blocks;
    }
    report(getOperation(), "update groups: " + describe(grouping));
    return assign(groups, grouping.groupOf);
  }

  /// All that trains, deferred together.
  LogicalResult asOne() {
    std::vector<UpdateGroup> groups(1);
    groups[0].name = "all";
    for (graph::ParameterOp parameter : trainable)
      groups[0].bytes += plan::tensorBytes(parameter.getTensorType());
    return assign(groups, std::vector<int32_t>(trainable.size(), 0));
  }

  static std::string describe(const Grouping &grouping) {
    std::string text;
    llvm::raw_string_ostream os(text);
    os << grouping.groups.size() << " of " << grouping.blocks << " blocks "
       << (grouping.chain ? "in a chain" : "(no single tensors part the model)")
       << ", in the order in which gradients are ready; the largest has "
       << llvm::format("%.3f", grouping.imbalance)
       << " of an equal share of bytes or backward time, no cut of these blocks less "
          "than "
       << llvm::format("%.3f", grouping.leastImbalance) << "; " << grouping.cutValues
       << " tensors of " << grouping.cutBytes << " bytes pass between groups, "
       << percent(grouping.allBytes ? static_cast<double>(grouping.cutBytes) /
                                          static_cast<double>(grouping.allBytes)
                                    : 0)
       << " of all that carry a gradient";
    return text;
  }

  LogicalResult byRules() {
    std::vector<int32_t> groupOf(trainable.size(), -1);
    std::vector<UpdateGroup> groups;
    for (const UpdateGroupRule &rule : spec.update.rules) {
      auto glob = llvm::GlobPattern::create(rule.match);
      if (!glob)
        return getOperation().emitError("pattern '")
               << rule.match << "' of 'update.grouping' is no glob: "
               << llvm::toString(glob.takeError());
      bool matched = false;
      for (auto [index, parameter] : llvm::enumerate(trainable)) {
        StringRef name = modelName(parameter.getSymName());
        if (!glob->match(name))
          continue;
        matched = true;
        if (groupOf[index] >= 0)
          return getOperation().emitError("update.grouping: parameter '")
                 << name << "' is in group '" << groups[groupOf[index]].name
                 << "' and in group '" << rule.name
                 << "'; make their patterns exclude each other";
        groupOf[index] = static_cast<int32_t>(groups.size());
      }
      if (!matched)
        return unmatched(rule);
      groups.push_back({rule.name, 0, 0, 0});
    }
    for (auto [index, parameter] : llvm::enumerate(trainable))
      if (groupOf[index] < 0)
        return getOperation().emitError("update.grouping: no group takes parameter '")
               << modelName(parameter.getSymName())
               << "'; add {name: rest, match: ...} for what is left";
    for (auto [index, parameter] : llvm::enumerate(trainable))
      groups[groupOf[index]].bytes += plan::tensorBytes(parameter.getTensorType());
    report(getOperation(),
           "update groups: " + std::to_string(groups.size()) + " by rules of the spec");
    return assign(groups, groupOf);
  }

  LogicalResult unmatched(const UpdateGroupRule &rule) {
    std::vector<std::string> names;
    for (graph::ParameterOp parameter : trainable)
      names.push_back(modelName(parameter.getSymName()).str());
    return getOperation().emitError("update.grouping: group '")
           << rule.name << "': '" << rule.match << "' matches no trainable parameter"
           << nearestNames(rule.match, names);
  }

  LogicalResult assign(MutableArrayRef<UpdateGroup> groups, ArrayRef<int32_t> groupOf) {
    if (failed(assignUpdateModes(getOperation(), spec, groups, trainable, groupOf)))
      return failure();
    noteOverlap(getOperation(), spec, groups, trainable, groupOf);
    Builder builder(&getContext());
    std::vector<int64_t> members(groups.size(), 0);
    for (auto [index, parameter] : llvm::enumerate(trainable)) {
      if (groupOf[index] < 0)
        continue; // nothing reads it: it has no gradient either
      parameter->setAttr(updateGroupAttr, builder.getI64IntegerAttr(groupOf[index]));
      ++members[groupOf[index]];
      decide(getOperation(), modelName(parameter.getSymName()),
             "updates: group " + groups[groupOf[index]].name);
    }
    setUpdateGroups(getOperation(), groups);
    for (auto [group, count] : llvm::zip_equal(groups, members))
      decide(getOperation(), "group " + group.name, describe(group, count));
    return success();
  }

  static std::string describe(const UpdateGroup &group, int64_t members) {
    std::string text = "updates: " + describeMode(group) + "; " +
                       std::to_string(members) + " parameters of " +
                       std::to_string(group.bytes) + " bytes";
    if (group.blocks > 0) {
      llvm::raw_string_ostream(text) << llvm::format(", %.1f us backward in ", group.us);
      text += std::to_string(group.blocks) + (group.blocks == 1 ? " block" : " blocks");
    }
    return text;
  }

  const TrainingSpec &spec;
  std::vector<graph::ParameterOp> trainable; // in the order of their names
};

} // namespace

std::unique_ptr<Pass> createGroupParameters(const TrainingSpec &spec) {
  return std::make_unique<GroupParameters>(spec);
}

} // namespace sluice
