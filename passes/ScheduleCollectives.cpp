// ScheduleCollectives: collectives leave the queue of launches for one of their own, in
// which they run beside the launches, several buffers as one message. Behind the order,
// which says when each buffer is complete, and before memory is planned, since buffers
// live until their message is done.
//
// Every rank sends the same messages in the same order, whichever of @step and @update
// its window ends with: @update takes the messages of @step.

#include "passes/Collectives.h"
#include "passes/LaunchCosts.h"
#include "passes/LiveRanges.h"
#include "passes/OverlapUpdates.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"
#include "passes/lowering/ProgramBuilder.h"
#include "passes/planning/CollectiveSchedule.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_SCHEDULECOLLECTIVES
#include "passes/Passes.h.inc"
namespace {

constexpr int64_t lineBytes = 64;

StringAttr nameOf(plan::LaunchOp launch) {
  return launch->getAttrOfType<StringAttr>(collectiveNameAttr);
}
Type elementOf(plan::LaunchOp launch) {
  return launch->getAttrOfType<TypeAttr>(elementAttr).getValue();
}
plan::StageOp stageOf(plan::LaunchOp launch) {
  return cast<plan::StageOp>(launch.getBody().front().front());
}
StringAttr kindOf(plan::LaunchOp launch) {
  auto kind = launch->getAttrOfType<StringAttr>(collectiveKindAttr);
  return kind ? kind : StringAttr::get(launch.getContext(), "all_reduce");
}
bool dealsRows(plan::LaunchOp launch) { return launch->hasAttr(collectiveRowCountAttr); }

/// Of the tensor that all ranks have parts in.
int64_t wholeBytes(plan::LaunchOp launch) {
  plan::StageOp stage = stageOf(launch);
  return std::max(plan::rangeOf(stage.getIns().front()).size,
                  plan::rangeOf(stage.getOuts().back()).size);
}
/// Of the module's ranks, on its links.
std::vector<CollectiveCost> waysOf(ModuleOp module, CollectiveKind kind) {
  int64_t ranks = 1;
  if (auto attr = module->getAttrOfType<IntegerAttr>(ranksAttr))
    ranks = std::max<int64_t>(1, attr.getInt());
  return collectiveWays(kind, ranks, linksOf(deviceRates(module)));
}

class ProgramScheduler {
public:
  ProgramScheduler(plan::ProgramOp program, const CollectiveProblem &rates)
      : program(program), launches(launchesOf(program)), problem(rates),
        overlapped(program->getParentOfType<ModuleOp>()) {
    for (size_t i = 0; i < launches.size(); ++i)
      addNode(i);
  }

  /// With the messages of another program, if it has any. `maySpend`: the step may need
  /// more bytes than without messages in flight.
  LogicalResult run(ArrayRef<std::vector<std::string>> given, bool maySpend) {
    if (failed(take(given)))
      return failure();
    if (given.empty() && !program->getParentOfType<ModuleOp>()->hasAttr(bucketBytesAttr))
      problem.bucketBytes = fastestBucket(problem);
    bool isBound = !maySpend && given.empty();
    CollectiveSchedule schedule = scheduleIn(isBound);
    if (isBound && overlapped.any() && peakOf(schedule) > peakNow()) {
      // Sums that wait for the rest of their group hold bytes.
      for (CollectiveProblem::Node &node : problem.nodes)
        node.group = -1;
      note = "; the budget has no room for whole groups as messages";
      schedule = scheduleIn(isBound);
    }
    if (!schedule.error.empty())
      return program.emitError("the collectives cannot be scheduled: ") << schedule.error;
    describe(schedule); // of launches that are gone afterwards
    apply(schedule);
    return success();
  }

  /// For the report.
  std::string text;

  /// Names of the collectives of each message.
  std::vector<std::vector<std::string>> messages;

private:
  /// Holding less where the peak would pass that without messages in flight.
  CollectiveSchedule scheduleIn(bool isBound) {
    problem.heldBytes = problem.given.empty() ? INT64_MAX : 0;
    CollectiveSchedule schedule = scheduleCollectives(problem);
    for (int64_t held = totalBytes() / 2;
         schedule.error.empty() && isBound && peakOf(schedule) > peakNow(); held /= 2) {
      problem.heldBytes = held;
      schedule = scheduleCollectives(problem);
      if (held == 0)
        break;
    }
    return schedule;
  }

  static const void *keyOf(const LaunchAccess &access) {
    auto state = dyn_cast<plan::StateBufferOp>(access.range.root);
    return state ? state.getSymbolAttr().getAsOpaquePointer()
                 : static_cast<const void *>(access.range.root);
  }

  void addNode(size_t index) {
    plan::LaunchOp launch = launches[index];
    CollectiveProblem::Node node;
    node.us = launch.getPredictedUs().convertToDouble();
    node.bytes = -1;
    accesses.push_back(accessesOf(launch));
    if (isCollective(launch)) {
      node.us = 0;
      node.bytes = wholeBytes(launch);
      (kindOf(launch) == "all_gather" ? gathered : summed) += wholeBytes(launch);
      std::pair<Type, Attribute> kind(elementOf(launch), kindOf(launch));
      auto [known, isNew] = kinds.try_emplace(kind, kinds.size());
      if (isNew)
        problem.ways.push_back(waysOf(program->getParentOfType<ModuleOp>(),
                                      collectiveKindOf(kindOf(launch).getValue())));
      node.kind = known->second;
      node.group = overlapped.of(nameOf(launch).getValue());
      byName[nameOf(launch).getValue()] = index;
    }
    for (const LaunchAccess &access : accesses.back())
      for (size_t earlier : history[keyOf(access)])
        for (const LaunchAccess &other : accesses[earlier])
          if (conflict(access, other))
            node.after.push_back(static_cast<int32_t>(earlier));
    llvm::sort(node.after);
    node.after.erase(llvm::unique(node.after), node.after.end());
    problem.nodes.push_back(std::move(node));
    for (const LaunchAccess &access : accesses.back())
      if (auto &list = history[keyOf(access)]; list.empty() || list.back() != index)
        list.push_back(index);
  }

  LogicalResult take(ArrayRef<std::vector<std::string>> given) {
    size_t count = 0;
    for (const std::vector<std::string> &message : given) {
      problem.given.emplace_back();
      for (const std::string &name : message) {
        auto known = byName.find(name);
        if (known == byName.end())
          return program.emitError("has no collective '") << name << "', as others have";
        problem.given.back().push_back(known->second);
        ++count;
      }
    }
    if (!given.empty() && count != byName.size())
      return program.emitError("has ")
             << byName.size() << " collectives, expected " << count;
    fillInTurn();
    return success();
  }

  /// A rank that has nothing to add fills what it sends when the message before is done:
  /// zeros for all gradients would be there at once else.
  void fillInTurn() {
    llvm::SmallDenseSet<int32_t> seen; // what fills more messages goes with the first
    for (auto [m, message] : llvm::enumerate(problem.given))
      for (int32_t node : message)
        for (int32_t before : problem.nodes[node].after)
          if (CollectiveProblem::Node &fill = problem.nodes[before];
              kindOf(launches[node]) == "reduce_scatter" && !fill.isCollective() &&
              fill.after.empty() && seen.insert(before).second && m > 0)
            fill.after.push_back(problem.given[m - 1].front());
  }

  int64_t totalBytes() const {
    int64_t bytes = 0;
    for (const CollectiveProblem::Node &node : problem.nodes)
      bytes += std::max<int64_t>(node.bytes, 0);
    return bytes;
  }

  /// The most bytes that are live at once when launches and messages run like this.
  int64_t peakOf(ArrayRef<int64_t> first, ArrayRef<int64_t> last, int64_t instants) {
    llvm::MapVector<Operation *, LiveRange> ranges;
    for (size_t i = 0; i < launches.size(); ++i)
      for (const LaunchAccess &access : accesses[i])
        if (isa<plan::BufferOp>(access.range.root)) {
          ranges[access.range.root].include(first[i]);
          ranges[access.range.root].include(last[i]);
        }
    std::vector<int64_t> live(instants + 2);
    for (auto &[root, range] : ranges) {
      auto buffer = cast<plan::BufferOp>(root);
      int64_t bytes = llvm::alignTo(buffer.getSize(), lineBytes);
      live[isInput(buffer) ? 0 : range.first] += bytes;
      live[(isOutput(buffer) ? instants : range.last) + 1] -= bytes;
    }
    int64_t now = 0, most = 0;
    for (int64_t change : live)
      most = std::max(most, now += change);
    return most;
  }

  int64_t peakNow() {
    std::vector<int64_t> at(launches.size());
    for (size_t i = 0; i < at.size(); ++i)
      at[i] = i;
    return peakOf(at, at, launches.size());
  }

  int64_t peakOf(const CollectiveSchedule &schedule) {
    std::vector<int64_t> first(launches.size()), last(launches.size());
    for (auto [at, node] : llvm::enumerate(schedule.order))
      first[node] = last[node] = at;
    std::vector<int64_t> waits = waitsOf(schedule);
    for (auto [m, message] : llvm::enumerate(schedule.messages)) {
      // Messages that no launch waits for last to the end.
      int64_t doneBy = llvm::upper_bound(waits, int64_t(m)) - waits.begin();
      for (int32_t node : message.nodes) {
        first[node] = message.launchesBefore;
        last[node] = std::max(first[node], doneBy - 1);
      }
    }
    return peakOf(first, last, schedule.order.size());
  }

  /// For each launch in order: so many messages are done before it begins, those that it
  /// needs and, of those that deal out rows, the ones that are done by then anyway
  /// (predicted): the bytes of what they have read are free.
  std::vector<int64_t> waitsOf(const CollectiveSchedule &schedule) const {
    std::vector<int64_t> messageOf(launches.size(), -1), waits;
    for (auto [m, message] : llvm::enumerate(schedule.messages))
      for (int32_t node : message.nodes)
        messageOf[node] = m;
    double now = 0;
    int64_t waited = 0;
    size_t past = 0; // messages that are done by now
    for (int32_t node : schedule.order) {
      for (int32_t before : problem.nodes[node].after)
        waited = std::max(waited, messageOf[before] + 1);
      if (waited > 0)
        now = std::max(now, schedule.messages[waited - 1].endUs);
      for (; past < schedule.messages.size() && schedule.messages[past].endUs <= now;
           ++past)
        if (dealsRows(launches[schedule.messages[past].nodes.front()]))
          waited = std::max(waited, int64_t(past) + 1);
      waits.push_back(waited);
      now += problem.nodes[node].us;
    }
    return waits;
  }

  void apply(const CollectiveSchedule &schedule) {
    OpBuilder builder(program.getContext());
    Block &compute = program.queue().getBody().front();
    builder.setInsertionPointAfter(program.queue());
    OperationState state(program.getLoc(), plan::QueueOp::getOperationName());
    state.addAttribute("sym_name", builder.getStringAttr("comm"));
    state.addRegion()->emplaceBlock();
    auto queue = cast<plan::QueueOp>(builder.create(state));
    builder.setInsertionPointToEnd(&queue.getBody().front());
    int64_t waited = 0, sent = 0;
    std::vector<int64_t> waits = waitsOf(schedule); // while the launches are there
    for (const CollectiveSchedule::Message &message : schedule.messages) {
      if (message.launchesBefore > waited)
        builder.create<plan::WaitOp>(program.getLoc(), "compute", message.launchesBefore);
      waited = std::max(waited, message.launchesBefore);
      create(message, builder);
      builder.create<plan::SignalOp>(program.getLoc(), ++sent);
    }
    for (int32_t node : schedule.order)
      launches[node]->moveBefore(&compute, compute.end());
    addWaits(schedule, waits);
    for (size_t i = 0; i < launches.size(); ++i)
      if (problem.nodes[i].isCollective())
        launches[i].erase();
    program.setPredictedUs(APFloat(schedule.timeUs));
  }

  void describe(const CollectiveSchedule &schedule) {
    double sent = 0;
    for (const CollectiveSchedule::Message &message : schedule.messages)
      sent += message.endUs - message.beginUs;
    std::string what = llvm::formatv("{0} bytes of sums over ranks", summed).str();
    if (gathered > 0)
      what += llvm::formatv(" and {0} bytes that ranks gather", gathered).str();
    text = llvm::formatv("{0} in {1} messages an update, {2:F0} us on the link; of the "
                         "{3:F0} us of '{4}' {5:F0} us wait for them (predicted)",
                         what, schedule.messages.size(), sent, schedule.timeUs,
                         program.getEntry(), schedule.waitedUs)
               .str() +
           note;
  }

  void create(const CollectiveSchedule::Message &message, OpBuilder &builder) {
    SmallVector<Value> ins, outs;
    SmallVector<StringRef> names;
    SmallVector<int64_t> rows;
    std::vector<std::string> &texts = messages.emplace_back();
    for (int32_t node : message.nodes) {
      ins.push_back(stageOf(launches[node]).getIns()[0]);
      outs.push_back(stageOf(launches[node]).getOuts().back());
      if (auto count = launches[node]->getAttrOfType<IntegerAttr>(collectiveRowCountAttr))
        rows.push_back(count.getInt());
      names.push_back(nameOf(launches[node]));
      texts.push_back(names.back().str());
    }
    plan::LaunchOp first = launches[message.nodes.front()];
    auto created = builder.create<plan::CollectiveOp>(
        first.getLoc(), kindOf(first), builder.getStrArrayAttr(names),
        TypeAttr::get(elementOf(first)), ins, outs,
        builder.getF64FloatAttr(message.endUs - message.beginUs));
    if (!rows.empty())
      created->setAttr(plan::collectiveRowsAttr, builder.getDenseI64ArrayAttr(rows));
  }

  /// Signals of the launches, and what launches wait for.
  void addWaits(const CollectiveSchedule &schedule, ArrayRef<int64_t> waits) {
    llvm::SmallDenseSet<int64_t> signals;
    for (const CollectiveSchedule::Message &message : schedule.messages)
      signals.insert(message.launchesBefore);
    int64_t place = 0, waited = 0;
    for (int32_t node : schedule.order) {
      plan::LaunchOp launch = launches[node];
      OpBuilder builder(launch);
      int64_t needed = waits[place];
      if (needed > waited)
        builder.create<plan::WaitOp>(launch.getLoc(), "comm", needed);
      waited = needed;
      builder.setInsertionPointAfter(launch);
      if (signals.contains(++place))
        builder.create<plan::SignalOp>(launch.getLoc(), place);
    }
  }

  plan::ProgramOp program;
  SmallVector<plan::LaunchOp> launches;
  CollectiveProblem problem;
  std::vector<SmallVector<LaunchAccess>> accesses;
  llvm::DenseMap<const void *, std::vector<size_t>> history;
  llvm::DenseMap<std::pair<Type, Attribute>, int32_t> kinds;
  llvm::StringMap<int32_t> byName;
  OverlappedGroups overlapped;
  std::string note;                 // for the report
  int64_t summed = 0, gathered = 0; // bytes
};

struct ScheduleCollectives : impl::ScheduleCollectivesBase<ScheduleCollectives> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<plan::ProgramOp> programs;
    for (auto program : module.getOps<plan::ProgramOp>())
      if (llvm::any_of(launchesOf(program), isCollective))
        programs.push_back(program);
    // @step first: it has work to run beside its messages.
    for (size_t i = 1; i < programs.size(); ++i)
      if (programs[i].getEntry() == "step")
        std::swap(programs[0], programs[i]);
    std::vector<std::vector<std::string>> messages;
    for (plan::ProgramOp program : programs) {
      if (program.copyQueue()) {
        program.emitError("offload beside the collectives of several ranks is not "
                          "there yet; set 'memory.offload' to 'none'");
        return signalPassFailure();
      }
      mergeInPlace(program);
      if (module->hasAttr(updateEveryAttr)) // each turn has groups of its own
        messages.clear();
      ProgramScheduler scheduler(program, rates(module));
      if (failed(scheduler.run(messages, !module->hasAttr(hasBudgetAttr))))
        return signalPassFailure();
      if (messages.empty()) {
        messages = std::move(scheduler.messages);
        report(module, "comm: " + scheduler.text);
      }
    }
    if (auto kernel = module.lookupSymbol<plan::KernelOp>(collectiveKernel))
      kernel.erase();
  }

  static CollectiveProblem rates(ModuleOp module) {
    CollectiveProblem problem;
    // Buckets are for what long messages are sent by.
    std::vector<CollectiveCost> ways = waysOf(module, CollectiveKind::AllReduce);
    const CollectiveCost &longest = fastestWay(ways, int64_t(1) << 40);
    if (longest.usPerByte > 0)
      problem.bucketBytes = bucketBytesOf(longest.latencyUs, 1 / longest.usPerByte);
    problem.host = linksOf(deviceRates(module)).host;
    if (auto bytes = module->getAttrOfType<IntegerAttr>(bucketBytesAttr))
      problem.bucketBytes = bytes.getInt();
    if (auto window = module->getAttrOfType<FloatAttr>(windowMsAttr))
      problem.windowUs = window.getValueAsDouble() * 1e3;
    return problem;
  }
};

} // namespace

std::unique_ptr<Pass> createScheduleCollectives() {
  return std::make_unique<ScheduleCollectives>();
}
} // namespace sluice
