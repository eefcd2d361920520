// Concatenations and slices that only regions read are read where they lie: a copy of all
// that was joined before, in each layer of a dense block, is quadratic in its depth.
//
// A concatenation goes into every region that reads it, its parts become the region's
// operands; concatenations of concatenations become one. It is all or nothing: what must
// be in memory for one reader is there for all. A slice that would be copied is read in
// the larger tensor, unless that would keep much more in memory, or for long.

#include "passes/RegionClusters.h"
#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// Columns of a walk over a concatenation or slice: with fewer, finding the place costs
/// more than the copy.
constexpr int64_t enoughColumns = 32;
/// Operations between a slice's source and its last reader.
constexpr int64_t nearOperations = 256;
/// Launches of a concatenation that is copied.
constexpr size_t maxCopies = 64;

} // namespace

/// What a cluster is like with the move inside; not yet that of the cluster.
struct RegionClusters::MoveReader {
  Cluster *cluster = nullptr;
  std::vector<Operation *> ops;
  int64_t elements = 0, units = 0;
  SmallVector<std::pair<Operation *, Operation *>> replaced; // old, new
  Operation *clone = nullptr;                                // of the move
  SmallVector<std::pair<OpOperand *, Value>> changed;        // and what it was
};

/// `outer` with the parts of `inner` in its place.
graph::ConcatOp RegionClusters::withPieces(graph::ConcatOp outer, graph::ConcatOp inner) {
  SmallVector<Value> pieces;
  for (Value input : outer.getInputs()) {
    if (input == inner.getY())
      llvm::append_range(pieces, inner.getInputs());
    else
      pieces.push_back(input);
  }
  OpBuilder builder(outer);
  auto made = builder.create<graph::ConcatOp>(outer.getLoc(), pieces, outer.getAxis());
  made->setDiscardableAttrs(outer->getDiscardableAttrDictionary());
  position[made] = position.lookup(outer);
  return made;
}

/// Keeping the whole instead of the slice costs little and ends soon.
bool RegionClusters::isNearSource(graph::SliceOp slice) const {
  Operation *source = slice.getX().getDefiningOp();
  if (isa_and_nonnull<graph::ReadOp>(source) || sliceOffsetBytes(slice))
    return false;
  int64_t size = graph::tensorType(slice.getY()).getNumElements();
  int64_t whole = graph::tensorType(slice.getX()).getNumElements();
  int64_t last = 0;
  for (Operation *user : slice->getUsers())
    last = std::max(last, position.lookup(user));
  return 5 * size >= 3 * whole && last - position.lookup(slice) <= nearOperations;
}

/// The concatenations outside of clusters that the move is a part of; nothing if
/// something else outside of clusters reads it.
std::optional<SmallVector<Operation *>> RegionClusters::loneReaders(Operation *move) {
  SmallVector<Operation *> lone;
  auto inner = dyn_cast<graph::ConcatOp>(move);
  for (Operation *user : move->getUsers()) {
    if (clusterOf(user) || llvm::is_contained(lone, user))
      continue;
    auto outer = dyn_cast<graph::ConcatOp>(user);
    if (!inner || !outer || outer.getAxis() != inner.getAxis() ||
        outer.getInputs().size() + inner.getInputs().size() > maxCopies)
      return std::nullopt;
    lone.push_back(user);
  }
  return lone;
}

/// Puts the move into the cluster's operations; false if that is no kernel.
bool RegionClusters::prepare(Operation *move, Cluster &cluster, MoveReader &reader) {
  reader.cluster = &cluster;
  reader.ops = cluster.ops;
  auto inner = dyn_cast<graph::ConcatOp>(move);
  auto redirect = [&](OpOperand &use, Value to) {
    reader.changed.push_back({&use, use.get()});
    use.set(to);
  };
  for (Operation *&op : reader.ops) {
    if (!llvm::is_contained(op->getOperands(), move->getResult(0)))
      continue;
    if (auto outer = dyn_cast<graph::ConcatOp>(op)) {
      if (!inner || outer.getAxis() != inner.getAxis())
        return false;
      graph::ConcatOp joined = withPieces(outer, inner);
      reader.replaced.push_back({op, joined});
      for (OpOperand &use : llvm::make_early_inc_range(op->getUses()))
        redirect(use, joined.getY());
      op = joined;
      continue;
    }
    if (isa<graph::SliceOp>(op))
      return false;
    if (!reader.clone) {
      reader.clone = move->clone();
      block.getOperations().insertAfter(move->getIterator(), reader.clone);
      position[reader.clone] = position.lookup(move);
    }
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get() == move->getResult(0))
        redirect(operand, reader.clone->getResult(0));
  }
  if (reader.clone)
    reader.ops.insert(reader.ops.begin(), reader.clone);
  FailureOr<RegionDomain> domain = fit(reader.ops);
  if (failed(domain) || domain->columns() < enoughColumns)
    return false;
  reader.elements = domain->elements();
  reader.units = domain->units;
  return true;
}

void RegionClusters::undo(MoveReader &reader) {
  for (auto &[use, old] : llvm::reverse(reader.changed))
    use->set(old);
  for (auto &[old, made] : reader.replaced) {
    position.erase(made);
    made->erase();
  }
  if (reader.clone) {
    position.erase(reader.clone);
    reader.clone->erase();
  }
}

void RegionClusters::commit(MoveReader &reader) {
  reader.cluster->ops = std::move(reader.ops);
  reader.cluster->elements = reader.elements;
  reader.cluster->units = reader.units;
  for (auto &[old, made] : reader.replaced) {
    clusters.erase(old);
    clusters[made] = reader.cluster;
    position.erase(old);
    old->erase();
  }
  if (reader.clone)
    clusters[reader.clone] = reader.cluster;
}

/// True if the move is gone: all of its readers read through it.
bool RegionClusters::readInPlace(Operation *move) {
  auto slice = dyn_cast<graph::SliceOp>(move);
  if (!isa<graph::ConcatOp, graph::SliceOp>(move) || (slice && !isNearSource(slice)))
    return false;
  std::vector<Cluster *> users = userClusters(move);
  std::optional<SmallVector<Operation *>> lone = loneReaders(move);
  if (users.empty() || !lone)
    return false;
  std::vector<MoveReader> readers(users.size());
  for (size_t i = 0; i < users.size(); ++i)
    if (!prepare(move, *users[i], readers[i])) {
      for (size_t done = i + 1; done-- > 0;)
        undo(readers[done]);
      return false;
    }
  for (MoveReader &reader : readers)
    commit(reader);
  for (Operation *outer : *lone) {
    graph::ConcatOp joined =
        withPieces(cast<graph::ConcatOp>(outer), cast<graph::ConcatOp>(move));
    setDepth(joined, depthOf(outer));
    loneDepth.erase(outer);
    position.erase(outer);
    outer->replaceAllUsesWith(joined);
    outer->erase();
  }
  position.erase(move);
  move->erase();
  return true;
}

} // namespace sluice
