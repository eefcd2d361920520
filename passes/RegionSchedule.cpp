#include "passes/RegionSchedule.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace sluice;

namespace {
/// A worker's scratch should stay in its level-2 cache.
constexpr int64_t maxScratchBytes = 1 << 20;
constexpr int64_t lanes = 16, lineBytes = 64;
constexpr int64_t minSweepRows = 16, maxSweepUnits = 8;

/// Walks what each pass computes, from its targets back to what is read from memory.
class Scheduler {
public:
  Scheduler(ArrayRef<Operation *> ops, RegionDomain &domain, bool useScratch)
      : ops(ops), domain(domain), useScratch(useScratch) {}

  void run() {
    domain.kept.clear();
    domain.lastRead.clear();
    for (pass = 0; pass < domain.passes; ++pass) {
      visited.clear();
      PassTargets targets = passTargets(ops, domain, pass);
      for (Operation *reduction : targets.reductions)
        visit(reduction->getOpOperand(0));
      for (Value output : targets.outputs)
        visit(output);
    }
    domain.scratchBytes = slots * domain.slotBytes;
  }

private:
  void visit(OpOperand &use) {
    auto leaf = domain.leaves.find(&use);
    if (leaf == domain.leaves.end())
      return visit(use.get());
    if (leaf->second.inner)
      domain.lastRead[&use] = pass;
  }

  void visit(Value value) {
    if (!domain.values.find(value)->second.inner || !visited.insert(value).second)
      return;
    int first = firstPass.try_emplace(value, pass).first->second;
    if (first < pass && keep(value, first))
      return;
    for (OpOperand &operand : value.getDefiningOp()->getOpOperands())
      visit(operand);
  }

  bool keep(Value value, int first) {
    if (domain.kept.contains(value))
      return true;
    if (!isExpensive(value.getDefiningOp()))
      return false;
    DimMask shape = domain.values.find(value)->second.shape;
    if (llvm::is_contained(domain.outputs, value) && shape == domain.allDims()) {
      domain.kept[value] = {-1, first};
      return true;
    }
    if (!useScratch || !graph::tensorType(value).getElementType().isF32())
      return false;
    domain.kept[value] = {slots++, first};
    return true;
  }

  ArrayRef<Operation *> ops;
  RegionDomain &domain;
  bool useScratch;
  int pass = 0, slots = 0;
  llvm::DenseMap<Value, int> firstPass;
  llvm::SmallDenseSet<Value> visited;
};

/// Bytes of one f32 value for all points of a unit's walk, rows padded to full vectors.
int64_t slotBytes(const RegionDomain &domain) {
  int64_t rows = domain.rowDim < 0 ? 1 : domain.dims[domain.rowDim];
  int64_t columns = domain.kind == WalkKind::Columns
                        ? RegionDomain::stripColumns
                        : llvm::alignTo(domain.columns(), lanes);
  return llvm::alignTo(rows * columns * 4, lineBytes);
}
/// Sums over many rows in one pass: several strips together read memory in longer runs.
void planSweep(ArrayRef<Operation *> ops, RegionDomain &domain) {
  if (domain.kind != WalkKind::Columns || domain.passes != 1 ||
      domain.dims[domain.rowDim] < minSweepRows ||
      domain.columns() <= RegionDomain::stripColumns)
    return;
  PassTargets targets = passTargets(ops, domain, 0);
  if (targets.reductions.empty())
    return;
  domain.sweepUnits = maxSweepUnits;
  domain.sweepVectorBytes = lanes * 4;
  for (Operation *reduction : targets.reductions)
    if (!graph::tensorType(reduction->getOperand(0)).getElementType().isF32())
      domain.sweepVectorBytes = lanes * 8;
  int64_t vectors = RegionDomain::stripColumns / lanes;
  // A sum of the block and a total.
  domain.scratchBytes = domain.sweepUnits * domain.sweepVectorBytes * vectors * 2 *
                        static_cast<int64_t>(targets.reductions.size());
}
} // namespace

bool sluice::isExpensive(Operation *op) {
  if (isa<graph::RandomUniformOp>(op))
    return true;
  auto elementwise = dyn_cast<graph::Elementwise>(op);
  return elementwise && elementwise.isExpensive();
}

bool sluice::isReduction(Operation *op, const RegionDomain &domain) {
  if (!isa<graph::ReduceOp>(op))
    return false;
  DimMask from = domain.operand(op->getOpOperand(0)).shape;
  return from != domain.values.find(op->getResult(0))->second.shape;
}

int sluice::outputPass(const RegionDomain &domain, Value output) {
  const RegionValue &value = domain.values.find(output)->second;
  return value.inner ? value.pass : value.pass + 1;
}

PassTargets sluice::passTargets(ArrayRef<Operation *> ops, const RegionDomain &domain,
                                int pass) {
  PassTargets targets;
  for (Operation *op : ops)
    if (isReduction(op, domain) &&
        domain.values.find(op->getResult(0))->second.pass == pass)
      targets.reductions.push_back(op);
  for (Value output : domain.outputs) {
    bool elementwise = domain.values.find(output)->second.shape & domain.innerDims();
    if (elementwise && outputPass(domain, output) == pass &&
        !llvm::is_contained(targets.outputs, output))
      targets.outputs.push_back(output);
  }
  return targets;
}

void sluice::scheduleRegion(ArrayRef<Operation *> ops, RegionDomain &domain) {
  domain.passes = 0;
  for (Operation *op : ops)
    if (isReduction(op, domain))
      domain.passes =
          std::max(domain.passes, domain.values.find(op->getResult(0))->second.pass + 1);
  for (Value output : domain.outputs)
    if (domain.values.find(output)->second.shape & domain.innerDims())
      domain.passes = std::max(domain.passes, outputPass(domain, output) + 1);
  domain.slotBytes = slotBytes(domain);
  Scheduler(ops, domain, /*useScratch=*/true).run();
  if (domain.scratchBytes > maxScratchBytes)
    Scheduler(ops, domain, /*useScratch=*/false).run();
  planSweep(ops, domain);
}
