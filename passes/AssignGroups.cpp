// Decides for every parameter whether it trains and with which optimizer options. Names
// are matched here and nowhere else: later passes read `trainable`, `group` and the
// module's `graph.groups`.

#include "ir/TrainingSpec.h"
#include "passes/ClipGradients.h"
#include "passes/Collectives.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_ASSIGNGROUPS
#include "passes/Passes.h.inc"

namespace {

/// A glob of the spec that must match at least one parameter.
struct Pattern {
  std::string text, key;
  llvm::GlobPattern glob;
  bool matched = false;
  bool match(StringRef name) {
    bool hit = glob.match(name);
    matched |= hit;
    return hit;
  }
};

FailureOr<Pattern> makePattern(ModuleOp module, const std::string &text,
                               const std::string &key) {
  auto glob = llvm::GlobPattern::create(text);
  if (!glob)
    return emitError(UnknownLoc::get(module.getContext()))
           << "pattern '" << text << "' of '" << key
           << "' is no glob: " << llvm::toString(glob.takeError());
  return Pattern{text, key, std::move(*glob)};
}

struct Patterns {
  std::vector<Pattern> trainable, frozen, groups;
};

FailureOr<Patterns> makePatterns(ModuleOp module, const TrainingSpec &spec) {
  Patterns patterns;
  auto addAll = [&](std::vector<Pattern> &list, const std::string &text,
                    const std::string &key) {
    auto pattern = makePattern(module, text, key);
    if (succeeded(pattern))
      list.push_back(std::move(*pattern));
    return success(succeeded(pattern));
  };
  for (const std::string &text : spec.trainable)
    if (failed(addAll(patterns.trainable, text, "trainable")))
      return failure();
  for (const std::string &text : spec.frozen)
    if (failed(addAll(patterns.frozen, text, "frozen")))
      return failure();
  for (const ParameterGroupSpec &group : spec.parameterGroups)
    if (failed(addAll(patterns.groups, group.match, "parameter_groups")))
      return failure();
  return patterns;
}

bool anyMatch(std::vector<Pattern> &patterns, StringRef name) {
  bool hit = false;
  for (Pattern &pattern : patterns) // all of them: each must be seen to match something
    hit |= pattern.match(name);
  return hit;
}

OptimizerSpec overridden(OptimizerSpec options, const ParameterGroupSpec &group) {
  if (group.kind)
    options = optimizerDefaults(*group.kind);
  auto take = [&](const char *key, auto OptimizerSpec::*field) {
    if (group.keys.count(key))
      options.*field = group.options.*field;
  };
  using O = OptimizerSpec;
  take("lr", &O::lr);
  take("betas", &O::beta1), take("betas", &O::beta2);
  take("eps", &O::eps);
  take("eps_mode", &O::epsBeforeCorrection);
  take("weight_decay", &O::weightDecay);
  take("momentum", &O::momentum);
  take("dampening", &O::dampening);
  take("nesterov", &O::nesterov);
  take("amsgrad", &O::amsgrad);
  take("momentum_decay", &O::momentumDecay);
  take("decoupled_weight_decay", &O::decoupledWeightDecay);
  take("lr_decay", &O::lrDecay);
  take("initial_accumulator_value", &O::initialAccumulator);
  take("alpha", &O::alpha);
  take("centered", &O::centered);
  take("beta2_decay", &O::beta2Decay);
  take("eps2", &O::eps2);
  take("d", &O::d);
  take("ns_steps", &O::nsSteps);
  take("adjust_lr_fn", &O::matchRmsAdamw);
  return options;
}

struct Group {
  std::string name;
  OptimizerSpec options;
  std::vector<std::string> members; // symbols, in name order
};

/// What only some kinds of schedules have.
DictionaryAttr scheduleOptions(Builder &b, const ScheduleSpec &schedule) {
  return b.getDictionaryAttr({
      b.getNamedAttr("min_ratio", b.getF64FloatAttr(schedule.minRatio)),
      b.getNamedAttr("decay_steps", b.getI64IntegerAttr(schedule.decaySteps)),
      b.getNamedAttr("decay", b.getStringAttr(schedule.decay)),
      b.getNamedAttr("step_size", b.getI64IntegerAttr(schedule.stepSize)),
      b.getNamedAttr("gamma", b.getF64FloatAttr(schedule.gamma)),
      b.getNamedAttr("pct_start", b.getF64FloatAttr(schedule.pctStart)),
      b.getNamedAttr("div_factor", b.getF64FloatAttr(schedule.divFactor)),
      b.getNamedAttr("final_div_factor", b.getF64FloatAttr(schedule.finalDivFactor)),
      b.getNamedAttr("points", b.getDenseI64ArrayAttr(schedule.points)),
      b.getNamedAttr("factors", b.getDenseF64ArrayAttr(schedule.factors)),
  });
}

DictionaryAttr describe(Builder &b, const Group &group, const ScheduleSpec &schedule) {
  SmallVector<Attribute> members;
  for (const std::string &member : group.members)
    members.push_back(b.getStringAttr(member));
  const OptimizerSpec &o = group.options;
  return b.getDictionaryAttr({
      b.getNamedAttr("name", b.getStringAttr(group.name)),
      b.getNamedAttr("kind", b.getStringAttr(o.kind)),
      b.getNamedAttr("lr", b.getF64FloatAttr(o.lr)),
      b.getNamedAttr("beta1", b.getF64FloatAttr(o.beta1)),
      b.getNamedAttr("beta2", b.getF64FloatAttr(o.beta2)),
      b.getNamedAttr("eps", b.getF64FloatAttr(o.eps)),
      b.getNamedAttr("weight_decay", b.getF64FloatAttr(o.weightDecay)),
      b.getNamedAttr("momentum", b.getF64FloatAttr(o.momentum)),
      b.getNamedAttr("dampening", b.getF64FloatAttr(o.dampening)),
      b.getNamedAttr("nesterov", b.getBoolAttr(o.nesterov)),
      b.getNamedAttr("eps_before", b.getBoolAttr(o.epsBeforeCorrection)),
      b.getNamedAttr("amsgrad", b.getBoolAttr(o.amsgrad)),
      b.getNamedAttr("momentum_decay", b.getF64FloatAttr(o.momentumDecay)),
      b.getNamedAttr("decoupled", b.getBoolAttr(o.decoupledWeightDecay)),
      b.getNamedAttr("lr_decay", b.getF64FloatAttr(o.lrDecay)),
      b.getNamedAttr("initial_accumulator", b.getF64FloatAttr(o.initialAccumulator)),
      b.getNamedAttr("alpha", b.getF64FloatAttr(o.alpha)),
      b.getNamedAttr("centered", b.getBoolAttr(o.centered)),
      b.getNamedAttr("beta2_decay", b.getF64FloatAttr(o.beta2Decay)),
      b.getNamedAttr("eps2", b.getF64FloatAttr(o.eps2)),
      b.getNamedAttr("d", b.getF64FloatAttr(o.d)),
      b.getNamedAttr("ns_steps", b.getI64IntegerAttr(o.nsSteps)),
      b.getNamedAttr("match_rms_adamw", b.getBoolAttr(o.matchRmsAdamw)),
      b.getNamedAttr("schedule", b.getStringAttr(schedule.kind)),
      b.getNamedAttr("schedule_options", scheduleOptions(b, schedule)),
      b.getNamedAttr("warmup_steps", b.getI64IntegerAttr(schedule.warmupSteps)),
      b.getNamedAttr("total_steps", b.getI64IntegerAttr(schedule.totalSteps)),
      b.getNamedAttr("lr_scale", b.getF64FloatAttr(schedule.lrScale)),
      b.getNamedAttr("warmup_scale", b.getF64FloatAttr(schedule.warmupScale)),
      b.getNamedAttr("members", b.getArrayAttr(members)),
  });
}

class AssignGroups : public impl::AssignGroupsBase<AssignGroups> {
public:
  explicit AssignGroups(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    auto patterns = makePatterns(getOperation(), spec);
    if (failed(patterns))
      return signalPassFailure();
    groups.clear();
    std::vector<graph::ParameterOp> parameters =
        StateSymbols(getOperation()).parameters();
    for (graph::ParameterOp parameter : parameters)
      assign(parameter, *patterns);
    if (failed(checkAllMatched(*patterns, parameters)) ||
        failed(markClipUnits(getOperation(), spec.clip)))
      return signalPassFailure();
    writeGroups();
  }

private:
  void assign(graph::ParameterOp parameter, Patterns &patterns) {
    StringRef name = modelName(parameter.getSymName());
    bool trains = anyMatch(patterns.trainable, name);
    trains &= !anyMatch(patterns.frozen, name);
    trains &= !parameter->hasAttr("graph.adapted"); // its adapters do
    trains &= isa<FloatType>(parameter.getTensorType().getElementType());
    OptimizerSpec options = spec.optimizer;
    std::string groupName = "default";
    for (auto [i, pattern] : llvm::enumerate(patterns.groups)) {
      if (!pattern.match(name))
        continue;
      options = overridden(options, spec.parameterGroups[i]);
      trains &= !spec.parameterGroups[i].frozen;
      groupName = "group" + std::to_string(i + 1);
    }
    parameter.setTrainable(trains);
    if (options.kind == "muon" && parameter.getTensorType().getRank() < 2) {
      options.kind = "adamw"; // Muon is for matrices
      groupName += "-vectors";
    }
    if (trains)
      join(parameter, options, groupName);
    else
      parameter.removeGroupAttr();
  }

  /// Two parameters may reach the same options by other rules, or other options by the
  /// same last rule.
  void join(graph::ParameterOp parameter, const OptimizerSpec &options,
            std::string name) {
    auto group =
        llvm::find_if(groups, [&](const Group &g) { return g.options == options; });
    if (group == groups.end()) {
      while (llvm::any_of(groups, [&](const Group &g) { return g.name == name; }))
        name += "b";
      group = groups.insert(groups.end(), Group{name, options, {}});
    }
    group->members.push_back(parameter.getSymName().str());
    parameter.setGroup(group->name);
  }

  LogicalResult checkAllMatched(const Patterns &patterns,
                                ArrayRef<graph::ParameterOp> parameters) {
    if (groups.empty() && llvm::is_contained(spec.entries, "step"))
      return emitError(UnknownLoc::get(&getContext()))
             << "no parameter of the model trains (it has " << parameters.size()
             << "); check 'trainable' and 'frozen'";
    for (const auto *list : {&patterns.trainable, &patterns.frozen, &patterns.groups})
      for (const Pattern &pattern : *list)
        if (!pattern.matched && !parameters.empty())
          return emitError(UnknownLoc::get(&getContext()))
                 << "pattern '" << pattern.text << "' of '" << pattern.key
                 << "' matches no parameter; the first one is '"
                 << modelName(graph::ParameterOp(parameters.front()).getSymName()) << "'";
    return success();
  }

  /// One line per group: what trains, and how.
  std::string describeGroup(const Group &group) {
    std::string text;
    llvm::raw_string_ostream line(text);
    const OptimizerSpec &o = group.options;
    line << "groups: '" << group.name << "' trains " << group.members.size()
         << " parameter" << (group.members.size() == 1 ? "" : "s") << " by " << o.kind
         << ", lr " << llvm::format("%g", o.lr) << ", weight decay "
         << llvm::format("%g", o.weightDecay);
    return text;
  }

  void writeGroups() {
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    SmallVector<Attribute> descriptions;
    for (const Group &group : groups) {
      descriptions.push_back(describe(builder, group, spec.schedule));
      report(module, describeGroup(group));
    }
    module->setAttr("graph.groups", builder.getArrayAttr(descriptions));
    module->setAttr("graph.accumulate", builder.getI64IntegerAttr(spec.accumulate));
    module->setAttr("graph.as_ranks", builder.getI64IntegerAttr(spec.asRanks));
    setRanks(module, builder);
    module->setAttr("graph.threads", builder.getI64IntegerAttr(spec.threads));
    module->setAttr("graph.seed",
                    builder.getI64IntegerAttr(static_cast<int64_t>(spec.seed)));
  }

  /// What later stages need to know of ranks.
  void setRanks(ModuleOp module, Builder &builder) {
    if (spec.ranks == 1)
      return;
    module->setAttr(ranksAttr, builder.getI64IntegerAttr(spec.ranks));
    module->setAttr(timeoutAttr, builder.getF64FloatAttr(spec.timeoutSeconds));
    if (spec.bucketBytes)
      module->setAttr(bucketBytesAttr, builder.getI64IntegerAttr(*spec.bucketBytes));
    if (spec.windowMs > 0)
      module->setAttr(windowMsAttr, builder.getF64FloatAttr(spec.windowMs));
    if (spec.budgetBytes || !spec.ladder.empty())
      module->setAttr(hasBudgetAttr, builder.getUnitAttr());
  }

  const TrainingSpec &spec;
  std::vector<Group> groups;
};

} // namespace

std::unique_ptr<Pass> createAssignGroups(const TrainingSpec &spec) {
  return std::make_unique<AssignGroups>(spec);
}

} // namespace sluice
