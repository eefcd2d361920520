// Decides which sets of operations are one kernel: axes (RegionAxes), then collapsed
// dimensions, then the kind of walk from what is reduced, then the passes
// (RegionSchedule).

#include "passes/RegionDomain.h"

#include "passes/AxisOrder.h"
#include "passes/RegionAxes.h"
#include "passes/RegionSchedule.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace sluice;

DimMask RegionDomain::allDims() const {
  return static_cast<DimMask>((uint64_t{1} << dims.size()) - 1);
}

RegionValue RegionDomain::operand(OpOperand &use) const {
  auto leaf = leaves.find(&use);
  return leaf != leaves.end() ? leaf->second : values.find(use.get())->second;
}

int64_t RegionDomain::elements() const {
  int64_t product = 1;
  for (int64_t size : dims)
    product *= size;
  return product;
}

DimMask RegionDomain::innerDims() const {
  DimMask row = rowDim < 0 ? 0 : DimMask{1} << rowDim;
  return kind == WalkKind::Columns ? row : row | lastDim();
}

namespace {
constexpr int64_t minSweeps = 6;

class Analysis {
public:
  Analysis(ArrayRef<Operation *> ops, RegionAxes &axes) : ops(ops), axes(axes) {}

  LogicalResult run(RegionDomain &domain) {
    this->domain = &domain;
    findBoundary();
    FailureOr<AxisOrder> found = orderAxes(ops, domain.outputs, axes);
    if (failed(found))
      return failure();
    order = std::move(*found);
    if (failed(placeWindows()))
      return failure();
    collapse();
    placeLeaves();
    if (failed(chooseKind()) || failed(checkPieces()) || failed(placeValues()) ||
        failed(checkOutputs()))
      return failure();
    scheduleRegion(ops, domain);
    countUnits();
    return success();
  }

private:
  void findBoundary();
  LogicalResult placeWindows();
  void collapse();
  void placeLeaves();
  LogicalResult chooseKind();
  LogicalResult checkPieces() const;
  LogicalResult placeValues();
  LogicalResult checkOutputs();
  void countUnits();

  /// Dimensions of the domain that hold any of the axes.
  DimMask dimMask(ArrayRef<int> list) const {
    DimMask mask = 0;
    for (int axis : list)
      mask |= DimMask{1} << dimOfAxis[order.position.find(axis)->second];
    return mask;
  }
  Axes iotaAxes(graph::IotaOp iota, const TensorAxes &tensor) const {
    return axes.table.resolve(tensor[iota.getAxis()]);
  }
  /// A constant or iota lies where it is used, unless it is an output itself.
  bool hasPlace(Operation *op) const {
    return !isGenerated(op) || llvm::is_contained(domain->outputs, op->getResult(0));
  }
  /// The sample's axes of batched random numbers: the element index starts anew for each.
  Axes sampleAxes(Operation *op) const {
    auto random = dyn_cast<graph::RandomUniformOp>(op);
    if (!random || !random.getBatched() || random.getShape().empty())
      return {};
    return axes.table.resolve(axes.values.find(random.getY())->second.front());
  }
  DimMask generatedSupport(Operation *op, const TensorAxes &tensor) const {
    auto iota = dyn_cast<graph::IotaOp>(op);
    return iota ? dimMask(iotaAxes(iota, tensor)) : 0;
  }

  ArrayRef<Operation *> ops;
  RegionAxes &axes;
  RegionDomain *domain = nullptr;
  AxisOrder order;
  SmallVector<unsigned> dimOfAxis;                  // by position
  llvm::DenseMap<OpOperand *, unsigned> windowAxis; // its position
  DimMask dimStarts = 0; // positions that do not join the one before
};
} // namespace

void Analysis::findBoundary() {
  llvm::SmallPtrSet<Operation *, 16> members(ops.begin(), ops.end());
  llvm::SmallDenseSet<Value> seen;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (!members.contains(operand.getDefiningOp()) && seen.insert(operand).second)
        domain->inputs.push_back(operand);
    if (llvm::any_of(op->getUsers(),
                     [&](Operation *user) { return !members.contains(user); }))
      domain->outputs.push_back(op->getResult(0));
  }
}

// Along a window the tensor's dimensions in front have other strides than the domain's,
// so they stay apart; the parts of a concatenation are told apart by an index of its own.
LogicalResult Analysis::placeWindows() {
  for (auto &[use, window] : axes.windows) {
    Axes axis = axes.table.resolve(window.axis);
    if (axis.size() != 1)
      return failure();
    unsigned position = order.position.find(axis.front())->second;
    windowAxis[use] = position;
    dimStarts |= DimMask{1} << position;
    if (window.isPiece && position + 1 < order.axes.size())
      dimStarts |= DimMask{1} << (position + 1);
  }
  // Dimensions that are summed up together stay one: their order is that of a copy.
  return success(llvm::all_of(axes.reduced, [&](auto &reduced) {
    DimMask mask = order.mask(axes.table.resolve(reduced.second));
    return (mask & mask << 1 & dimStarts) == 0;
  }));
}

// Neighbours that every access treats alike become one dimension.
void Analysis::collapse() {
  SmallVector<DimMask> accesses;
  for (Operation *op : ops) {
    for (OpOperand &operand : op->getOpOperands()) {
      auto leaf = axes.leaves.find(&operand);
      if (leaf == axes.leaves.end())
        continue;
      Operation *producer = operand.get().getDefiningOp();
      bool inside = producer && llvm::is_contained(ops, producer);
      if (auto iota = dyn_cast_if_present<graph::IotaOp>(producer); iota && inside)
        accesses.push_back(order.mask(iotaAxes(iota, leaf->second)));
      else if (!inside)
        accesses.push_back(order.mask(axes.flat(&operand)));
    }
    if (auto iota = dyn_cast<graph::IotaOp>(op);
        iota && llvm::is_contained(domain->outputs, iota.getY()))
      accesses.push_back(
          order.mask(iotaAxes(iota, axes.values.find(iota.getY())->second)));
    if (isa<graph::RandomUniformOp>(op)) {
      accesses.push_back(order.mask(axes.flat(op->getResult(0))));
      // The first dimension may be the sample, which the element index starts anew for.
      const TensorAxes &drawn = axes.values.find(op->getResult(0))->second;
      if (!drawn.empty())
        accesses.push_back(order.mask(axes.table.resolve(drawn.front())));
    }
    if (auto reduced = axes.reduced.find(op); reduced != axes.reduced.end())
      accesses.push_back(order.mask(axes.table.resolve(reduced->second)));
  }
  for (Value output : domain->outputs)
    accesses.push_back(order.mask(axes.flat(output)));

  for (auto [i, axis] : llvm::enumerate(order.axes)) {
    bool joins =
        i > 0 && !(dimStarts >> i & 1) && llvm::all_of(accesses, [i = i](DimMask access) {
          return (access >> i & 1) == (access >> (i - 1) & 1);
        });
    if (joins)
      domain->dims.back() *= axes.table.size(axis);
    else
      domain->dims.push_back(axes.table.size(axis));
    dimOfAxis.push_back(domain->dims.size() - 1);
  }
}

void Analysis::placeLeaves() {
  llvm::SmallPtrSet<Operation *, 16> members(ops.begin(), ops.end());
  for (auto &[use, tensor] : axes.leaves) {
    RegionValue value;
    value.shape = dimMask(axes.flat(tensor));
    Operation *producer = use->get().getDefiningOp();
    value.support =
        members.contains(producer) ? generatedSupport(producer, tensor) : value.shape;
    if (auto found = axes.windows.find(use); found != axes.windows.end()) {
      const AxisWindow &window = found->second;
      unsigned position = windowAxis.find(use)->second;
      int dim = static_cast<int>(dimOfAxis[position]);
      // Axes behind the window's may have joined it.
      int64_t inside = domain->dims[dim] / axes.table.size(order.axes[position]);
      value.window = {dim, window.extent * inside, window.start * inside, window.isPiece};
    }
    domain->leaves[use] = value;
  }
}

LogicalResult Analysis::chooseKind() {
  DimMask reduced = 0;
  for (auto &[op, list] : axes.reduced) {
    DimMask mask = dimMask(axes.table.resolve(list));
    if (mask == 0)
      continue; // over dimensions of size 1 only: the value itself
    if (reduced != 0 && mask != reduced)
      return failure();
    reduced = mask;
    OpOperand &operand = op->getOpOperand(0);
    Axes shape =
        axes.leaves.contains(&operand) ? axes.flat(&operand) : axes.flat(operand.get());
    if (dimMask(shape) != domain->allDims())
      return failure();
  }
  domain->reduced = reduced;
  int last = static_cast<int>(domain->dims.size()) - 1;
  DimMask others = reduced & ~domain->lastDim();
  if (llvm::popcount(others) > 1)
    return failure();
  if (others != 0) {
    domain->rowDim = llvm::countr_zero(others);
    domain->kind = reduced & domain->lastDim() ? WalkKind::Channels : WalkKind::Columns;
  } else if (reduced != 0 || last != 0) {
    domain->kind = WalkKind::Rows;
  }
  for (int dim = 0; dim < last; ++dim)
    if (dim != domain->rowDim)
      domain->unitDims.push_back(dim);
  return success();
}

LogicalResult Analysis::checkPieces() const {
  return success(llvm::all_of(domain->leaves, [&](auto &entry) {
    const DimWindow &window = entry.second.window;
    return !window.isPiece ||
           llvm::is_contained(domain->unitDims, static_cast<unsigned>(window.dim));
  }));
}

// Support, level and pass of every value, in block order.
LogicalResult Analysis::placeValues() {
  DimMask inner = domain->innerDims();
  for (auto &[use, value] : domain->leaves)
    value.inner = value.support & inner;
  for (Operation *op : ops) {
    RegionValue value;
    // A generated value has a place at each use, and one of its own only as an output.
    if (isGenerated(op) && !llvm::is_contained(domain->outputs, op->getResult(0))) {
      domain->values[op->getResult(0)] = value;
      continue;
    }
    value.shape = dimMask(axes.flat(op->getResult(0)));
    bool readsInner = false;
    int innerPass = 0, known = -1;
    for (OpOperand &operand : op->getOpOperands()) {
      RegionValue from = domain->operand(operand);
      value.support |= from.support;
      readsInner |= from.inner;
      if (from.inner)
        innerPass = std::max(innerPass, from.pass);
      else
        known = std::max(known, from.pass);
    }
    if (isa<graph::RandomUniformOp>(op)) {
      if (readsInner)
        return failure();
      value.support = value.shape;
      domain->samples[op->getResult(0)] = dimMask(sampleAxes(op));
    } else if (isGenerated(op)) {
      value.support = generatedSupport(op, axes.values.find(op->getResult(0))->second);
    }
    DimMask reduced = 0;
    if (auto list = axes.reduced.find(op); list != axes.reduced.end())
      reduced = dimMask(axes.table.resolve(list->second));
    if (reduced != 0) {
      value.support &= ~reduced;
      value.inner = false;
      value.pass = readsInner ? std::max(innerPass, known + 1) : known + 1;
    } else {
      value.inner = value.support & inner;
      value.pass = value.inner ? std::max(innerPass, known + 1) : known;
    }
    domain->values[op->getResult(0)] = value;
  }
  return success();
}

// Every element of an output belongs to one unit.
LogicalResult Analysis::checkOutputs() {
  DimMask all = domain->allDims(), unit = all & ~domain->innerDims();
  for (Value output : domain->outputs) {
    DimMask shape = domain->values.find(output)->second.shape;
    if (shape != all && (shape != unit || domain->kind == WalkKind::Flat))
      return failure();
  }
  return success(!domain->outputs.empty());
}

void Analysis::countUnits() {
  int64_t units = 1;
  for (unsigned dim : domain->unitDims)
    units *= domain->dims[dim];
  if (domain->kind == WalkKind::Columns)
    units *= llvm::divideCeil(domain->columns(), RegionDomain::stripColumns);
  if (domain->kind == WalkKind::Flat)
    units = llvm::divideCeil(domain->columns(), RegionDomain::flatUnit);
  domain->units = units;
  int64_t perUnit = units == 0 ? 1 : std::max<int64_t>(1, domain->elements() / units);
  int64_t chunk = llvm::divideCeil(RegionDomain::chunkElements, perUnit);
  if (domain->sweepUnits > 0) // long runs of memory, but enough chunks to share out
    chunk = std::max(
        chunk, std::min<int64_t>(domain->sweepUnits, llvm::divideCeil(units, minSweeps)));
  domain->chunk = std::clamp<int64_t>(chunk, 1, std::max<int64_t>(1, units));
}

FailureOr<RegionDomain> sluice::analyseRegion(ArrayRef<Operation *> ops) {
  for (SharedInputs shared :
       {SharedInputs::All, SharedInputs::Large, SharedInputs::None}) {
    FailureOr<RegionAxes> axes = assignAxes(ops, shared);
    RegionDomain domain;
    if (succeeded(axes) && succeeded(Analysis(ops, *axes).run(domain)))
      return domain;
  }
  return failure();
}

FailureOr<RegionDomain> sluice::analyseRegion(graph::RegionOp region) {
  Block &body = region.getBody().front();
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  FailureOr<RegionDomain> domain = analyseRegion(ops);
  if (failed(domain))
    return failure();
  domain->inputs.assign(body.args_begin(), body.args_end());
  domain->outputs.assign(body.getTerminator()->operand_begin(),
                         body.getTerminator()->operand_end());
  // An input that is handed on needs no kernel.
  for (Value output : domain->outputs)
    if (isa<BlockArgument>(output))
      return failure();
  return domain;
}

bool sluice::canUpdateInPlace(const RegionDomain &domain, Value input, Value output) {
  if (input.getType() != output.getType())
    return false;
  RegionValue written = domain.values.find(output)->second;
  bool innerWrite = written.shape & domain.innerDims();
  for (auto &[use, leaf] : domain.leaves) {
    if (use->get() != input)
      continue;
    // Same dimensions in the same order: the same element at the same point of the walk.
    if (leaf.shape != written.shape || leaf.window.dim >= 0)
      return false;
    auto last = domain.lastRead.find(use);
    if (innerWrite && last != domain.lastRead.end() &&
        last->second > outputPass(domain, output))
      return false;
  }
  return true;
}

bool sluice::canUpdateInPlace(graph::RegionOp region, unsigned input, unsigned output) {
  if (region.getInputs()[input].getType() != region.getResult(output).getType())
    return false;
  FailureOr<RegionDomain> domain = analyseRegion(region);
  if (failed(domain))
    return false;
  Block &body = region.getBody().front();
  return canUpdateInPlace(*domain, body.getArgument(input),
                          body.getTerminator()->getOperand(output));
}
