// VerifyPlan: proves the plan. Live ranges cover every use, no two buffers live together
// overlap, everything lies in its reservation, and no launch can leave its operands.
// QueueVerifier.cpp proves what copies add.

#include "passes/ElasticRegion.h"
#include "passes/Passes.h"
#include "passes/PlanLaunches.h"
#include "passes/QueueVerifier.h"
#include "passes/RegionDomain.h"
#include "passes/VersionVerifier.h"
#include "passes/planning/PlacementChecker.h"

#include "kernels/Catalog.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_VERIFYPLAN
#include "passes/Passes.h.inc"
namespace {

class ProgramVerifier {
public:
  ProgramVerifier(plan::ProgramOp program, SymbolTable &symbols)
      : program(program), symbols(symbols) {}

  LogicalResult run() {
    bool sound = succeeded(verifyPlacement(false)) && succeeded(verifyPlacement(true));
    sound &= succeeded(verifyQueues(program));
    int64_t instant = 0;
    for (plan::LaunchOp launch : launchesOf(program)) {
      sound &= succeeded(verifyLives(launch, instant++));
      for (auto stage : launch.getBody().front().getOps<plan::StageOp>())
        sound &= succeeded(verifyStage(launch, stage));
    }
    return success(sound);
  }

private:
  LogicalResult verifyPlacement(bool onHost) {
    PlacementProblem problem;
    PlacementSolution solution;
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
      if (buffer.isOnHost() != onHost)
        continue;
      if (!buffer.getOffset() || !buffer.getFirst())
        return buffer.emitError("has no place; run 'plan-memory' before");
      problem.buffers.push_back({int64_t(*buffer.getFirst()),
                                 int64_t(*buffer.getLast()) + 1,
                                 int64_t(buffer.getSize())});
      solution.offsets.push_back(*buffer.getOffset());
    }
    solution.peakBytes = onHost ? program.getHostBytes() : program.getStepBytes();
    solution.lowerBoundBytes =
        onHost ? program.getHostBoundBytes() : program.getBoundBytes();
    solution.optimal = solution.peakBytes == solution.lowerBoundBytes;
    std::string wrong = checkPlacement(problem, solution);
    if (!wrong.empty())
      return program.emitError("the placement is wrong: ") << wrong;
    return success();
  }

  LogicalResult verifyLives(plan::LaunchOp launch, int64_t instant) {
    for (const LaunchAccess &access : accessesOf(launch)) {
      auto buffer = dyn_cast<plan::BufferOp>(access.range.root);
      if (isOnHost(access.range.root))
        return launch.emitError("launch ")
               << instant << " reads or writes the host's memory";
      if (!buffer || !buffer.getFirst())
        continue;
      int64_t first = *buffer.getFirst(), last = *buffer.getLast();
      if (instant < first || instant > last)
        return launch.emitError("launch ")
               << instant << " uses '" << buffer.getLabel() << "', which is live in ["
               << first << ", " << last << "]";
    }
    return success();
  }

  LogicalResult verifyStage(plan::LaunchOp launch, plan::StageOp stage) {
    auto kernel = symbols.lookup<plan::KernelOp>(stage.getKernel());
    if (!kernel.isGenerated())
      return verifyBuiltin(launch, stage);
    return verifyGenerated(launch, stage, kernel);
  }

  /// Bytes behind an operand that one worker may touch.
  static int64_t operandBytes(plan::StageOp stage, unsigned i) {
    auto strides = stage.getWorkerStrides();
    int64_t stride = strides ? (*strides)[i] : 0;
    return stride ? stride : plan::rangeOf(stage.getOperand(i)).size;
  }
  static int64_t unitStride(plan::StageOp stage, unsigned i) {
    auto strides = stage.getUnitStrides();
    return strides ? (*strides)[i] : 0;
  }

  LogicalResult verifyBuiltin(plan::LaunchOp launch, plan::StageOp stage) {
    std::vector<OperandExtent> extents;
    std::string why;
    ArrayRef<int64_t> params = stage.getParams();
    int64_t units = stage.units() * int64_t(stage.getUnitScale());
    if (!describeBuiltinLaunch(stage.getKernel().str(), params.data(), params.size(),
                               units, extents, why))
      return stage.emitError("'") << stage.getKernel() << "' would refuse: " << why;
    if (extents.size() != stage.getNumOperands())
      return stage.emitError("'") << stage.getKernel() << "' takes " << extents.size()
                                  << " operands, found " << stage.getNumOperands();
    for (auto [i, extent] : llvm::enumerate(extents)) {
      int64_t needed = extent.bytes;
      if (unitStride(stage, i) > 0) {
        if (unitStride(stage, i) != extent.unitBytes * int64_t(stage.getUnitScale()))
          return stage.emitError("operand ")
                 << i << " of '" << stage.getKernel() << "' has " << extent.unitBytes
                 << " bytes a unit, its stride is " << unitStride(stage, i);
        needed = unitStride(stage, i) *
                 std::min(int64_t(launch.getChunk()), int64_t(launch.getUnits()));
      }
      if (failed(expectBytes(stage, i, needed)))
        return failure();
    }
    return success();
  }

  LogicalResult verifyGenerated(plan::LaunchOp launch, plan::StageOp stage,
                                plan::KernelOp kernel) {
    auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
    FailureOr<RegionDomain> domain = analyseRegion(region);
    if (failed(domain))
      return kernel.emitError("cannot be one kernel");
    bool elastic = isElastic(region);
    std::optional<unsigned> tiled = tileInput(region);
    std::optional<TileParams> tiles = TileParams::unpack(stage.getParams());
    if (elastic && (domain->kind != WalkKind::Flat ||
                    (tiled ? !tiles : stage.getParams().size() != 1)))
      return stage.emitError("'")
             << kernel.getSymName() << "' takes the "
             << (tiled ? "sizes of a matrix and of its tiles" : "number of elements")
             << ", found " << stage.getParams().size() << " parameters";
    int64_t elements = elastic ? stage.getParams()[0] : 0;
    int64_t units = tiled     ? tiles->units()
                    : elastic ? elasticUnits(elements)
                              : domain->units;
    if (units != stage.units() * int64_t(stage.getUnitScale()))
      return launch.emitError("has ")
             << stage.units() << " units, '" << kernel.getSymName() << "' has " << units;
    SmallVector<int64_t> needed;
    auto bytesOf = [&](Value value) {
      return elastic ? elasticBytes(value.getType(), elements)
                     : plan::tensorBytes(value.getType());
    };
    for (Value input : region.getInputs())
      needed.push_back(bytesOf(input));
    for (Value output : region.getOutputs())
      needed.push_back(bytesOf(output));
    if (tiled)
      if (failed(verifyTiles(stage, region.getInputs()[*tiled], *tiled,
                             tiles->tileElements())))
        return failure();
    if (kernel.getScratch() > 0)
      needed.push_back(kernel.getScratch());
    if (needed.size() != stage.getNumOperands())
      return stage.emitError("'") << kernel.getSymName() << "' takes " << needed.size()
                                  << " operands, found " << stage.getNumOperands();
    for (auto [i, bytes] : llvm::enumerate(needed)) {
      if (int64_t stride = unitStride(stage, i))
        bytes = stride * std::min(int64_t(launch.getChunk()), int64_t(launch.getUnits()));
      if (failed(expectBytes(stage, i, bytes)))
        return failure();
    }
    return success();
  }

  /// What lies tile by tile is a value of one chunk.
  static LogicalResult verifyTiles(plan::StageOp stage, Value input, unsigned tiled,
                                   int64_t elements) {
    int64_t bytes =
        elements * plan::elementBytes(graph::tensorType(input).getElementType());
    if (unitStride(stage, tiled) == bytes * int64_t(stage.getUnitScale()))
      return success();
    return stage.emitError("operand ")
           << tiled << " of '" << stage.getKernel() << "' has " << bytes
           << " bytes a tile, its stride is " << unitStride(stage, tiled);
  }

  static LogicalResult expectBytes(plan::StageOp stage, unsigned i, int64_t needed) {
    int64_t found = operandBytes(stage, i);
    if (needed <= found)
      return success();
    return stage.emitError("operand ") << i << " of '" << stage.getKernel() << "' has "
                                       << found << " bytes, expected " << needed;
  }

  plan::ProgramOp program;
  SymbolTable &symbols;
};

LogicalResult verifyState(ModuleOp module, bool onHost) {
  SmallVector<plan::StateOp> states;
  for (auto state : module.getOps<plan::StateOp>())
    if (state.isOnHost() == onHost)
      states.push_back(state);
  llvm::sort(states, [](plan::StateOp a, plan::StateOp b) {
    return std::pair(a.getOffset(), a.getSize()) < std::pair(b.getOffset(), b.getSize());
  });
  int64_t end = 0;
  for (plan::StateOp state : states) {
    int64_t offset = state.getOffset();
    if (offset < end || offset % 64 != 0)
      return state.emitError("lies at ")
             << offset << ", expected a multiple of 64 from " << end << " on";
    end = offset + int64_t(state.getSize());
  }
  return success();
}

struct VerifyPlan : impl::VerifyPlanBase<VerifyPlan> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    bool sound = succeeded(verifyState(getOperation(), false)) &&
                 succeeded(verifyState(getOperation(), true));
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      sound &= succeeded(ProgramVerifier(program, symbols).run());
    if (sound)
      sound = succeeded(verifyVersions(getOperation()));
    if (!sound)
      signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createVerifyPlan() { return std::make_unique<VerifyPlan>(); }
} // namespace sluice
