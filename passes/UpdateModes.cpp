#include "passes/UpdateModes.h"

#include "ir/TrainingSpec.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>

using namespace mlir;

namespace sluice {

double safeRate(int64_t delay) {
  constexpr double pi = 3.14159265358979323846;
  return delay > 0 ? std::sin(pi / double(4 * delay + 2)) : 1.0;
}

std::string describeMode(const UpdateGroup &group) {
  if (group.mode == "interleave")
    return llvm::formatv("interleave: {0}, at steps {1} mod {0}", group.every,
                         group.phase);
  if (group.mode == "defer")
    return llvm::formatv("defer: {0}, by the gradient of {0} steps before", group.delay);
  return group.mode;
}

LogicalResult checkUpdateModes(ModuleOp module, const TrainingSpec &spec) {
  if (!spec.update.isStaggered())
    return success();
  std::string mode = spec.update.every() > 1 ? "interleave" : "defer";
  auto refuse = [&](const Twine &other, const Twine &why) -> LogicalResult {
    return emitError(UnknownLoc::get(module.getContext()))
           << "'update.mode: " << mode << "' clashes with '" << other << "': " << why;
  };
  if (std::string all = spec.needsAllGradients(); !all.empty())
    return refuse(all, "it needs the gradients of all groups at once, and they are of "
                       "other steps; leave it out, or update in 'sync'");
  if (spec.update.every() > 1 && spec.asRanks > 1)
    return refuse("accumulate.as_ranks",
                  "sums of several steps would be parted by ranks; leave it out");
  if (spec.ranks > 1 && !spec.update.flushesBeforeSave)
    return refuse("update.flush", "each rank has sums of its own that wait, and a "
                                  "checkpoint of several ranks does not keep them yet; "
                                  "flush before 'save' too");
  if (spec.update.compensation.isOn() && spec.zero > 0)
    return refuse("parallel.zero", "'update.compensation' needs whole gradients and "
                                   "weights, which is not there yet; give one of them");
  return success();
}

namespace {

struct Timing {
  int64_t every = 1, phase = 0, delay = 0;
  bool operator<(const Timing &other) const {
    return std::tuple(every, phase, delay) <
           std::tuple(other.every, other.phase, other.delay);
  }
  std::string suffix() const {
    std::string text = every > 1 ? "@" + std::to_string(phase) : "";
    return delay > 0 ? text + "@defer=" + std::to_string(delay) : text;
  }
};

/// A group of equal optimizer options as parts that are updated together.
class OptionGroups {
public:
  OptionGroups(ModuleOp module, const TrainingSpec &spec,
               const std::map<std::string, Timing> &timings)
      : module(module), spec(spec), timings(timings), builder(module.getContext()) {}

  void part() {
    SmallVector<Attribute> parts;
    for (auto group :
         module->getAttrOfType<ArrayAttr>("graph.groups").getAsRange<DictionaryAttr>()) {
      std::map<Timing, SmallVector<Attribute>> members;
      for (auto member : group.getAs<ArrayAttr>("members").getAsRange<StringAttr>()) {
        auto found = timings.find(member.str());
        members[found == timings.end() ? Timing() : found->second].push_back(member);
      }
      bool isParted = members.size() > 1;
      for (auto &[timing, names] : members)
        parts.push_back(partOf(group, timing, names, isParted));
    }
    module->setAttr("graph.groups", builder.getArrayAttr(parts));
  }

private:
  DictionaryAttr partOf(DictionaryAttr group, const Timing &timing,
                        ArrayRef<Attribute> members, bool isParted) {
    NamedAttrList part(group);
    std::string whole = group.getAs<StringAttr>("name").str();
    std::string name = whole + (isParted ? timing.suffix() : "");
    part.set("name", builder.getStringAttr(name));
    part.set("part_of", builder.getStringAttr(whole));
    part.set("members", builder.getArrayAttr(members));
    part.set("every", builder.getI64IntegerAttr(timing.every));
    part.set("phase", builder.getI64IntegerAttr(timing.phase));
    part.set("delay", builder.getI64IntegerAttr(timing.delay));
    if (timing.delay > 0 && spec.update.safeLr) {
      double scale = group.getAs<FloatAttr>("lr_scale").getValueAsDouble();
      part.set("lr_scale", builder.getF64FloatAttr(scale * safeRate(timing.delay)));
    }
    for (Attribute member : members)
      cast<graph::ParameterOp>(
          SymbolTable::lookupSymbolIn(module, cast<StringAttr>(member)))
          .setGroup(name);
    return part.getDictionary(module.getContext());
  }

  ModuleOp module;
  const TrainingSpec &spec;
  const std::map<std::string, Timing> &timings; // by symbol
  Builder builder;
};

void reportModes(ModuleOp module, const TrainingSpec &spec,
                 ArrayRef<UpdateGroup> groups) {
  std::map<int64_t, int64_t> deferred; // groups by delay
  int64_t interleaved = 0;
  for (const UpdateGroup &group : groups) {
    interleaved += group.every > 1;
    if (group.delay > 0)
      ++deferred[group.delay];
  }
  const CompensationSpec &how = spec.update.compensation;
  if (interleaved > 0)
    report(module,
           llvm::formatv("update: {0} groups take turns of {1} steps, each by the mean "
                         "gradient of all samples since its last; own gradients are "
                         "never late, so there is nothing to compensate{2}",
                         interleaved, spec.update.every(),
                         how.isOn() ? ": compensation is zero there, and left out" : ""));
  for (auto [delay, count] : deferred) {
    report(module, llvm::formatv("update: gradients of {0} groups are applied {1} steps "
                                 "later",
                                 count, delay));
    report(module,
           llvm::formatv(
               "safe_lr: lr of deferred groups is {0} of that of the spec{1}: with a "
               "delay of {2} steps sin(pi / {3}) = {4:F4} of the stable rates is left",
               spec.update.safeLr ? llvm::formatv("{0:F4}", safeRate(delay)).str()
                                  : "the whole",
               spec.update.safeLr ? "" : " (safe_lr: false)", delay, 4 * delay + 2,
               safeRate(delay)));
  }
  if (how.isOn() && deferred.empty() && interleaved == 0)
    report(module, "compensation: no group is deferred: '" + how.kind +
                       "' has nothing to make up for");
}

} // namespace

LogicalResult assignUpdateModes(ModuleOp module, const TrainingSpec &spec,
                                MutableArrayRef<UpdateGroup> groups,
                                ArrayRef<graph::ParameterOp> parameters,
                                ArrayRef<int32_t> groupOf) {
  Builder builder(module.getContext());
  int64_t turn = 0, every = 1;
  for (auto [index, group] : llvm::enumerate(groups)) {
    bool byRule = !spec.update.byTopology && index < spec.update.rules.size();
    UpdateMode mode = byRule ? spec.update.rules[index].mode.value_or(spec.update.mode)
                             : spec.update.mode;
    group.mode = mode.kind, group.every = mode.every, group.delay = mode.delay;
    if (mode.every > 1) {
      group.phase = turn++ % mode.every;
      every = mode.every;
    }
  }
  // Steps in which others are updated may be nobody's turn.
  if (turn == int64_t(groups.size()) && turn < every)
    return emitError(UnknownLoc::get(module.getContext()))
           << "'update.mode: {interleave: " << every << "}' staggers groups, and "
           << "'update.grouping' makes " << turn
           << " that interleave; give a smaller 'update.group_size' or number of steps";
  std::map<std::string, Timing> timings;
  for (auto [parameter, index] : llvm::zip_equal(parameters, groupOf)) {
    graph::ParameterOp op = parameter;
    if (index < 0)
      continue;
    const UpdateGroup &group = groups[index];
    timings[op.getSymName().str()] = {group.every, group.phase, group.delay};
    if (group.every > 1)
      op->setAttr(updatePhaseAttr, builder.getI64IntegerAttr(group.phase));
    if (group.delay > 0)
      op->setAttr(updateDelayAttr, builder.getI64IntegerAttr(group.delay));
  }
  if (every > 1)
    module->setAttr(updateEveryAttr, builder.getI64IntegerAttr(every));
  if (spec.update.isStaggered()) {
    SmallVector<StringRef> flushes;
    if (spec.update.flushesBeforeEval)
      flushes.push_back("eval");
    if (spec.update.flushesBeforeSave)
      flushes.push_back("save");
    if (spec.update.flushesAtEnd)
      flushes.push_back("stop");
    module->setAttr(updateFlushAttr, builder.getStrArrayAttr(flushes));
    auto counter = RankedTensorType::get({}, builder.getI64Type());
    StateSymbols(module).declare("window/waiting", counter, "pending");
  }
  if (spec.update.isStaggered())
    OptionGroups(module, spec, timings).part();
  reportModes(module, spec, groups);
  return success();
}

} // namespace sluice
