#include "passes/MeasureStep.h"

#include "passes/AddProduct.h"
#include "passes/Pipeline.h"
#include "passes/PlanLaunches.h"
#include "passes/RegionDomain.h"
#include "passes/RegionResults.h"

#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

using Run = std::pair<int64_t, int64_t>; // operation; 0 or the number of a clone

Run runOf(Attribute attribute) {
  auto run = cast<DenseI64ArrayAttr>(attribute);
  return {run[0], run[1]};
}

void tag(Operation *op, Run run) {
  op->setAttr(runAttr, DenseI64ArrayAttr::get(op->getContext(), {run.first, run.second}));
}

/// Launches of a lowered clone.
struct LoweredStep {
  OwningOpRef<ModuleOp> module;
  std::map<Run, double> us;                      // of launches that are not chained
  std::map<std::pair<Run, Run>, double> chained; // of the launch of two runs
  std::map<Run, std::vector<plan::LaunchOp>> launches;

  LogicalResult lower(bool chain) {
    PassManager passes(module->getContext());
    buildMeasurePipeline(passes, chain);
    if (failed(passes.run(*module)))
      return failure();
    for (auto program : module->getOps<plan::ProgramOp>())
      for (plan::LaunchOp launch : launchesOf(program))
        if (Attribute run = launch->getAttr(runAttr))
          add(launch, runOf(run));
    return success();
  }

  double total(Run from, Run to) const {
    auto alone = us.find(from);
    return (alone == us.end() ? 0 : alone->second) + chained.at({from, to});
  }

private:
  void add(plan::LaunchOp launch, Run run) {
    double time = launch.getPredictedUs().convertToDouble();
    if (Attribute from = launch->getAttr(chainedRunAttr))
      chained[{runOf(from), run}] += time;
    else
      us[run] += time;
    launches[run].push_back(launch);
  }
};

/// Bytes of an operation's launches beside its operands and results, at their most:
/// scratch, and what one launch leaves to the next. Operands may be free after the last
/// launch that reads them.
int64_t workspaceOf(ArrayRef<plan::LaunchOp> launches, int64_t operandBytes) {
  struct Use {
    int64_t first, last, bytes;
    bool written, elsewhere;
  };
  llvm::MapVector<Operation *, Use> uses;
  for (auto [i, launch] : llvm::enumerate(launches))
    for (const LaunchAccess &access : accessesOf(launch)) {
      auto buffer = dyn_cast<plan::BufferOp>(access.range.root);
      if (!buffer)
        continue;
      int64_t at = i, bytes = llvm::alignTo(buffer.getSize(), lineBytes);
      Use &use = uses.insert({buffer, Use{at, at, bytes, false, false}}).first->second;
      use.last = at;
      use.written |= access.written;
    }
  for (auto &[root, use] : uses) {
    SmallVector<Value> open{cast<plan::BufferOp>(root).getBuffer()};
    while (!open.empty())
      for (Operation *user : open.pop_back_val().getUsers()) {
        if (auto slice = dyn_cast<plan::SliceOp>(user))
          open.push_back(slice.getBuffer());
        else if (!llvm::is_contained(launches, user->getParentOp()))
          use.elsewhere = true;
      }
  }
  int64_t most = 0, end = launches.size();
  for (int64_t at = 0; at < end; ++at) {
    int64_t live = 0;
    for (auto &[root, use] : uses) {
      bool operand = use.elsewhere && !use.written;
      int64_t first = operand ? 0 : use.first;
      int64_t last = use.elsewhere && use.written ? end : use.last;
      live += first <= at && at <= last ? use.bytes : 0;
    }
    most = std::max(most, live);
  }
  return std::max<int64_t>(0, most - operandBytes);
}

class StepMeter {
public:
  StepMeter(StepProblem &step, ModuleOp module, bool chain)
      : step(step), module(module), chain(chain) {}

  LogicalResult run() {
    for (auto [i, op] : llvm::enumerate(step.operations()))
      tag(op, {i, 0});
    LoweredStep alone = clone(), chained = clone(), pairs = clone();
    addResultProbes(*alone.module);
    if (failed(alone.lower(false)) || failed(chained.lower(chain)))
      return failure();
    addPairProbes(chained, *pairs.module);
    if (failed(pairs.lower(chain)))
      return failure();
    for (int64_t i = 0; i < int64_t(step.problem.ops.size()); ++i)
      measureAlone(alone, i);
    for (auto &[runs, us] : chained.chained)
      if (runs.first.second == 0)
        measureChained(runs.first, runs.second, chained, pairs);
    for (auto [i, op] : llvm::enumerate(step.operations())) {
      op->removeAttr(runAttr);
      if (auto region = dyn_cast<graph::RegionOp>(op))
        measureRegion(region, step.problem.ops[i]);
      if (auto grad = dyn_cast<graph::AttentionGradOp>(op))
        measureAttention(grad, step.problem.ops[i]);
    }
    return success();
  }

private:
  LoweredStep clone() {
    LoweredStep lowered;
    lowered.module = module.clone();
    return lowered;
  }

  static std::map<int64_t, Operation *> taggedOps(ModuleOp clone) {
    std::map<int64_t, Operation *> ops;
    clone.walk([&](Operation *op) {
      if (Attribute run = op->getAttr(runAttr))
        ops[runOf(run).first] = op;
    });
    return ops;
  }

  Operation *firstBackward(const std::map<int64_t, Operation *> &ops) const {
    for (auto [i, op] : ops)
      if (step.problem.ops[i].backward)
        return op;
    return nullptr;
  }

  bool mayDropResults(int64_t i) const {
    const RecomputeProblem::Op &op = step.problem.ops[i];
    return !op.backward && op.recomputable && op.outputs.size() > 1 &&
           isa<graph::RegionOp>(step.operations()[i]);
  }

  /// A copy in front of the backward part that computes one result.
  static void probeResult(graph::RegionOp region, unsigned result, Operation *before,
                          Run run) {
    OpBuilder builder(before);
    auto copy = cast<graph::RegionOp>(builder.clone(*region));
    if (graph::RegionOp smaller = keepResults(copy, result)) {
      tag(smaller, run);
      copy.erase();
    } else
      tag(copy, run);
  }

  void addResultProbes(ModuleOp clone) {
    auto ops = taggedOps(clone);
    Operation *before = firstBackward(ops);
    for (auto [i, op] : ops)
      if (before && mayDropResults(i))
        for (unsigned k = 0; k < op->getNumResults(); ++k)
          probeResult(cast<graph::RegionOp>(op), k, before, {i, k + 1});
  }

  /// As above, each with a copy of what its first run is chained with.
  void addPairProbes(const LoweredStep &chained, ModuleOp clone) {
    auto ops = taggedOps(clone);
    Operation *before = firstBackward(ops);
    for (auto &[runs, us] : chained.chained) {
      auto [from, to] = runs;
      if (!before || !mayDropResults(to.first))
        continue;
      auto region = cast<graph::RegionOp>(ops[to.first]);
      for (unsigned k = 0; k < region.getNumResults(); ++k) {
        OpBuilder builder(before);
        Operation *producer = builder.clone(*ops[from.first]);
        tag(producer, {from.first, k + 1});
        auto copy = cast<graph::RegionOp>(builder.clone(*region));
        for (OpOperand &operand : copy->getOpOperands())
          operand.set(instead(operand.get(), ops[from.first], producer, builder, copy));
        probeResult(copy, k, before, {to.first, k + 1});
        copy.erase();
      }
    }
  }

  /// `value` computed by `to` instead of `from`, through what renames its bytes.
  Value instead(Value value, Operation *from, Operation *to, OpBuilder &builder,
                Operation *before) {
    Operation *op = value.getDefiningOp();
    if (op == from)
      return to->getResult(0);
    if (!op || !isa<graph::ReshapeOp>(op) || op->hasAttr(runAttr))
      return value;
    Value source = instead(op->getOperand(0), from, to, builder, before);
    if (source == op->getOperand(0))
      return value;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(before);
    Operation *view = builder.clone(*op);
    view->setOperand(0, source);
    return view->getResult(0);
  }

  void measureAlone(const LoweredStep &alone, int64_t i) {
    RecomputeProblem::Op &op = step.problem.ops[i];
    auto first = alone.us.find({i, 0});
    op.costUs = first == alone.us.end() ? 0 : first->second;
    op.againUs = op.costUs;
    for (auto at = alone.us.lower_bound({i, 1}); at != alone.us.end(); ++at) {
      if (at->first.first != i)
        break;
      op.againUs = std::min(op.againUs, at->second);
    }
    int64_t operandBytes = 0;
    for (const auto *list : {&op.inputs, &op.outputs})
      for (int32_t v : *list)
        operandBytes += llvm::alignTo(step.problem.values[v].sizeBytes, lineBytes);
    auto launches = alone.launches.find({i, 0});
    op.workspaceBytes = launches == alone.launches.end()
                            ? 0
                            : workspaceOf(launches->second, operandBytes);
  }

  /// What the second run adds to the first when both are one launch.
  void measureChained(Run from, Run to, const LoweredStep &chained,
                      const LoweredStep &pairs) {
    RecomputeProblem::Op &first = step.problem.ops[from.first];
    RecomputeProblem::Op &second = step.problem.ops[to.first];
    double both = chained.total(from, to), producer = first.costUs;
    second.costUs = std::max(0.0, both - producer);
    first.costUs = both - second.costUs;
    double least = both;
    for (int64_t k = 1; mayDropResults(to.first) && k <= int64_t(second.outputs.size());
         ++k) {
      Run a{from.first, k}, b{to.first, k};
      least = pairs.chained.count({a, b}) ? std::min(least, pairs.total(a, b)) : 0;
    }
    second.againUs = std::max(0.0, std::min(second.againUs, least - first.againUs));
  }

  /// As PlanMemory merges buffers, and what single results are computed from.
  void measureRegion(graph::RegionOp region, RecomputeProblem::Op &op) {
    const auto &values = step.problem.values;
    if (addedProduct(region)) {
      int32_t sum = step.indexOf(region.getInputs()[addedSum]);
      op.inPlace.push_back({sum, step.indexOf(region.getResult(0))});
      return;
    }
    FailureOr<RegionDomain> domain = analyseRegion(region);
    if (failed(domain))
      return;
    Block &body = region.getBody().front();
    for (BlockArgument in : body.getArguments()) {
      int32_t from = step.indexOf(region.getInputs()[in.getArgNumber()]);
      if (from < 0 || values[from].preexisting || values[from].liveAtEnd)
        continue;
      for (OpOperand &out : body.getTerminator()->getOpOperands()) {
        int32_t to = step.indexOf(region.getResult(out.getOperandNumber()));
        if (values[from].sizeBytes == values[to].sizeBytes && values[to].sizeBytes > 0 &&
            canUpdateInPlace(*domain, in, out.get()))
          op.inPlace.push_back({from, to});
      }
    }
    for (int32_t input : op.inputs)
      for (OpResult result : region->getResults())
        if (llvm::none_of(sourcesOf(result),
                          [&](Value source) { return step.indexOf(source) == input; })) {
          op.optionalInputs.push_back(input);
          break;
        }
  }

  /// Gradients take the bytes of queries, keys and values.
  void measureAttention(graph::AttentionGradOp grad, RecomputeProblem::Op &op) {
    const auto &values = step.problem.values;
    for (unsigned i = 0; i < grad->getNumResults(); ++i) {
      int32_t from = step.indexOf(grad->getOperand(i));
      std::pair<int32_t, int32_t> pair(from, step.indexOf(grad->getResult(i)));
      if (from >= 0 && !values[from].preexisting && !values[from].liveAtEnd &&
          values[from].sizeBytes == values[pair.second].sizeBytes &&
          !llvm::is_contained(op.inPlace, pair))
        op.inPlace.push_back(pair);
    }
  }

  StepProblem &step;
  ModuleOp module;
  bool chain;
};

} // namespace

LogicalResult measureStep(StepProblem &step, ModuleOp module, bool chain) {
  step.problem.backwardInOrder = false; // OrderPlan moves launches
  return StepMeter(step, module, chain).run();
}

} // namespace sluice
