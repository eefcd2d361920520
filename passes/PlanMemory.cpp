// PlanMemory: live ranges from the order of the launches, results that take the bytes of
// an operand, and an offset for every buffer of the step reservation by
// planning/MemoryPlanner. Last, since a move of a launch changes live ranges. With
// `plan.red_zone` on the module, every buffer lies between two zones of so many bytes
// that no launch may touch: how tests see what a kernel writes beside its buffers.

#include "passes/Passes.h"
#include "passes/PlanLaunches.h"
#include "passes/planning/MemoryPlanner.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Passes.h.inc"
namespace {

struct LiveRange {
  int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
  void include(int64_t instant) {
    first = std::min(first, instant);
    last = std::max(last, instant);
  }
  bool empty() const { return first > last; }
};
using LiveRanges = DenseMap<Operation *, LiveRange>;

/// Instants are indices of launches; -1 is before the first, the count of launches behind
/// the last.
LiveRanges liveRanges(plan::ProgramOp program) {
  LiveRanges ranges;
  int64_t instant = 0;
  for (plan::LaunchOp launch : launchesOf(program)) {
    for (const LaunchAccess &access : accessesOf(launch))
      ranges[access.range.root].include(instant);
    ++instant;
  }
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    if (isInput(buffer))
      ranges[buffer].include(-1);
    if (isOutput(buffer))
      ranges[buffer].include(instant);
  }
  return ranges;
}

/// Gives results the bytes of an operand that nothing reads later.
class InPlaceMerger {
public:
  explicit InPlaceMerger(plan::ProgramOp program)
      : program(program), ranges(liveRanges(program)) {}

  void run() {
    int64_t instant = 0;
    for (plan::LaunchOp launch : launchesOf(program)) {
      for (auto stage : launch.getBody().front().getOps<plan::StageOp>())
        merge(stage, instant);
      ++instant;
    }
  }

private:
  void merge(plan::StageOp stage, int64_t instant) {
    ArrayRef<int64_t> pairs = stage.getInPlace().value_or(ArrayRef<int64_t>());
    for (size_t i = 0; i < pairs.size(); i += 2) {
      Value in = stage.getIns()[pairs[i]], out = stage.getOuts()[pairs[i + 1]];
      auto from = in.getDefiningOp<plan::BufferOp>(),
           to = out.getDefiningOp<plan::BufferOp>();
      if (!from || !to || from == to || from.getSize() != to.getSize())
        continue;
      // A port keeps its own bytes. In a chain the stage before has written just the rows
      // that this one reads; any other access to either would see the other's values.
      auto before = dyn_cast_or_null<plan::StageOp>(stage->getPrevNode());
      bool chained = before && llvm::is_contained(before.getOuts(), in);
      if (isInput(from) || isOutput(from) || ranges[from].last != instant ||
          ranges[to].first != instant || accessCount(stage, in) != 1 + chained ||
          accessCount(stage, out) != 1)
        continue;
      ranges[from].last = ranges[to].last;
      if (to.getCategory() == "gradients" || to.getCategory() == "io") {
        from.setCategoryAttr(to.getCategoryAttr());
        from.setLabelAttr(to.getLabelAttr());
      }
      to.getBuffer().replaceAllUsesWith(in);
      to.erase();
    }
    stage.removeInPlaceAttr();
  }

  /// Operands of the stage's launch that lie in the buffer.
  static int64_t accessCount(plan::StageOp stage, Value buffer) {
    Operation *root = plan::rangeOf(buffer).root;
    return llvm::count_if(accessesOf(stage->getParentOfType<plan::LaunchOp>()),
                          [&](auto &access) { return access.range.root == root; });
  }

  plan::ProgramOp program;
  LiveRanges ranges;
};

class MemoryPlacement {
public:
  explicit MemoryPlacement(plan::ProgramOp program)
      : program(program), redZone(plan::redZoneOf(program)) {
    LiveRanges ranges = liveRanges(program);
    for (auto buffer :
         llvm::make_early_inc_range(program.getBody().front().getOps<plan::BufferOp>())) {
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
  int64_t redZone;
  std::vector<plan::BufferOp> buffers;
  PlacementProblem problem;
};

struct PlanMemory : impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      InPlaceMerger(program).run();
      if (failed(MemoryPlacement(program).run()))
        return signalPassFailure();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createPlanMemory() { return std::make_unique<PlanMemory>(); }
} // namespace sluice
