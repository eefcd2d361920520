// PlanMemory: live ranges from the order of the launches and copies, results that take
// the bytes of an operand, operands that lie inside of a result, and an offset for every
// buffer of the step reservations of device and host by planning/MemoryPlanner. Last,
// since a move of a launch changes live ranges. With `plan.red_zone` on the module, every
// buffer lies between two zones of so many bytes that no launch may touch: how tests see
// what a kernel writes beside its buffers.

#include "passes/LiveRanges.h"
#include "passes/Passes.h"
#include "passes/planning/MemoryPlanner.h"

#include <map>

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Passes.h.inc"
namespace {

/// The buffers of one program in one of the two memories.
class MemoryPlacement {
public:
  MemoryPlacement(plan::ProgramOp program, bool onHost)
      : program(program), onHost(onHost), redZone(plan::redZoneOf(program)) {
    LiveRanges ranges = onHost ? hostLiveRanges(program) : liveRanges(program);
    for (auto buffer :
         llvm::make_early_inc_range(program.getBody().front().getOps<plan::BufferOp>())) {
      if (buffer.isOnHost() != onHost)
        continue;
      if (buffer.getBuffer().use_empty()) {
        buffer.erase();
        continue;
      }
      LiveRange range = ranges.lookup(buffer);
      if (range.empty())
        range = {0, 0}; // of no bytes, or only in slices that nothing uses
      buffers.push_back(buffer);
      problem.buffers.push_back(
          {range.first, range.last + 1, int64_t(buffer.getSize()) + 2 * redZone});
    }
  }

  LogicalResult run() {
    auto module = program->getParentOfType<ModuleOp>();
    if (auto budget = module->getAttrOfType<IntegerAttr>(stepBudgetAttr);
        budget && !onHost)
      problem.enoughBytes = budget.getInt();
    PlacementSolution solution = placeBuffers(problem);
    if (!solution.error.empty())
      return program.emitError("the buffers cannot be placed: ") << solution.error;
    Builder builder(program.getContext());
    for (auto [i, buffer] : llvm::enumerate(buffers)) {
      const PlacementProblem::Buffer &range = problem.buffers[i];
      buffer.setOffsetAttr(builder.getI64IntegerAttr(solution.offsets[i]));
      buffer.setFirstAttr(builder.getI64IntegerAttr(range.begin));
      buffer.setLastAttr(builder.getI64IntegerAttr(range.end - 1));
      if (redZone > 0)
        widen(buffer);
    }
    if (onHost) {
      program.setHostBytes(solution.peakBytes);
      program.setHostBoundBytes(solution.lowerBoundBytes);
      return success();
    }
    program.setStepBytes(solution.peakBytes);
    program.setBoundBytes(solution.lowerBoundBytes);
    program.setPeakAttr(peakByCategory(builder));
    return success();
  }

private:
  void widen(plan::BufferOp buffer) {
    OpBuilder builder(program.getContext());
    builder.setInsertionPointAfter(buffer);
    int64_t size = buffer.getSize();
    auto inside = builder.create<plan::SliceOp>(
        buffer.getLoc(), buffer.getBuffer().getType(), buffer.getBuffer(), redZone, size);
    buffer.getBuffer().replaceAllUsesExcept(inside, inside);
    buffer.setSize(size + 2 * redZone);
  }

  /// Bytes by category at the first instant at which most bytes are live.
  DictionaryAttr peakByCategory(Builder &builder) {
    int64_t peakInstant = 0, peak = -1;
    std::vector<std::pair<int64_t, int64_t>> events; // instant, change
    for (const auto &buffer : problem.buffers) {
      events.push_back({buffer.begin, buffer.sizeBytes});
      events.push_back({buffer.end, -buffer.sizeBytes});
    }
    llvm::sort(events);
    int64_t live = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      live += events[i].second;
      bool last = i + 1 == events.size() || events[i + 1].first != events[i].first;
      if (last && live > peak)
        peak = live, peakInstant = events[i].first;
    }
    std::map<StringRef, int64_t> bytes;
    for (auto [i, buffer] : llvm::enumerate(buffers)) {
      const PlacementProblem::Buffer &range = problem.buffers[i];
      if (range.begin <= peakInstant && peakInstant < range.end)
        bytes[buffer.getCategory()] += range.sizeBytes;
    }
    NamedAttrList list;
    for (auto [category, size] : bytes)
      list.append(category, builder.getI64IntegerAttr(size));
    return list.getDictionary(builder.getContext());
  }

  plan::ProgramOp program;
  bool onHost;
  int64_t redZone;
  std::vector<plan::BufferOp> buffers;
  PlacementProblem problem;
};

struct PlanMemory : impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      mergeInPlace(program);
      placeOperands(program);
      for (bool onHost : {false, true})
        if (failed(MemoryPlacement(program, onHost).run()))
          return signalPassFailure();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createPlanMemory() { return std::make_unique<PlanMemory>(); }
} // namespace sluice
