#include "passes/RegionClusters.h"

#include "ir/graph/SavedMark.h"
#include "passes/BlockOrder.h"
#include "passes/NarrowReads.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr size_t maxOps = 96;
constexpr size_t maxOperands = 32, maxPieces = 64;
/// A region with fewer units than this cannot occupy the workers; small ones do not
/// matter.
constexpr int64_t enoughUnits = 8, smallElements = 32768;

int64_t elementsOf(Value value) { return graph::tensorType(value).getNumElements(); }

/// Operations on single numbers behind `op`, itself included; stops counting at `limit`.
int64_t scalarWork(Operation *op, int64_t limit) {
  if (!isa_and_nonnull<graph::Elementwise>(op) || elementsOf(op->getResult(0)) != 1)
    return 0;
  int64_t work = 1;
  for (Value operand : op->getOperands())
    if (work < limit)
      work += scalarWork(operand.getDefiningOp(), limit - work);
  return work;
}

/// The f32 of a stored 16-bit value: read where it is used.
bool isWidening(Operation *op) {
  auto cast = dyn_cast<graph::CastOp>(op);
  if (!cast || !graph::tensorType(cast.getY()).getElementType().isF32())
    return false;
  Type from = graph::tensorType(cast.getX()).getElementType();
  return from.isBF16() || from.isF16();
}

/// Repeating it costs less than a trip through memory: nothing is computed, or only few
/// numbers.
bool isFree(Operation *op) {
  constexpr int64_t fewNumbers = 6;
  if (isa<graph::Elementwise>(op) && elementsOf(op->getResult(0)) == 1)
    return scalarWork(op, fewNumbers) < fewNumbers;
  if (auto constant = dyn_cast<graph::ConstantOp>(op))
    return constant.getValue().isSplat();
  return isa<graph::BroadcastOp, graph::IotaOp>(op) || isWidening(op);
}

bool mayJoin(Operation *op) {
  return isa<graph::Elementwise, graph::ReduceOp, graph::RandomUniformOp>(op);
}

/// The value whose elements an operand repeats or renames.
Value behindViews(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<graph::BroadcastOp, graph::ReshapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// True if some operation that is no part of a region reads the value, so that it is in
/// memory in any case.
bool isStored(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return !mayJoin(user) && !isFree(user) && !isa<graph::ReshapeOp>(user);
  });
}

/// Cheap arithmetic on one large operand, or on none (which class is the label's):
/// reading that instead of the result costs no more, and the result need not be stored
/// from the forward to the backward pass.
bool isCheapToRepeat(Operation *op) {
  auto elementwise = dyn_cast<graph::Elementwise>(op);
  if (!elementwise || elementwise.isExpensive())
    return false;
  constexpr int64_t small = 16; // one element for so many of the result
  auto type = graph::tensorType(op->getResult(0));
  llvm::SmallPtrSet<Value, 2> large;
  for (Value operand : op->getOperands()) {
    Value source = behindViews(operand);
    if (!isa_and_nonnull<graph::ConstantOp, graph::IotaOp>(source.getDefiningOp()) &&
        elementsOf(source) * small > type.getNumElements())
      large.insert(source);
  }
  if (large.size() != 1)
    return large.empty();
  Value source = *large.begin();
  bool smaller =
      type.getElementTypeBitWidth() < graph::tensorType(source).getElementTypeBitWidth();
  return !smaller || isStored(source);
}

/// "NAME" where nothing reads the result but writes of "param/NAME", "opt/NAME/m",
/// "master/NAME" or "master/NAME/low".
StringRef updatedTensor(Operation *op) {
  StringRef name;
  for (Operation *user : op->getUsers()) {
    auto write = dyn_cast<graph::WriteOp>(user);
    if (!write)
      return {};
    name = write.getSymbol().split('/').second;
    bool isLow = write.getSymbol().starts_with("master/") && name.ends_with("/low");
    if (isLow || write.getSymbol().starts_with("opt/"))
      name = name.rsplit('/').first;
  }
  return name;
}

} // namespace

RegionClusters::RegionClusters(Block &block) : block(block) { number(); }

void RegionClusters::number() {
  int64_t next = 0;
  for (Operation &op : block)
    position[&op] = next++;
}

void RegionClusters::grow(bool fuse) {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    add(op, fuse);
}

void RegionClusters::add(Operation *op, bool fuse) {
  if (fuse && readInPlace(op))
    return;
  if (fuse && mayBeReadNarrow(op))
    cloneIntoUsers(op);
  if (isReadNarrow(op))
    return raiseDepths(op);
  bool isConstant = isa<graph::ConstantOp>(op);
  bool view = isa<graph::ReshapeOp>(op);
  if (fuse ? isFree(op) || view : isConstant && isFree(op))
    cloneIntoUsers(op);
  if (fuse && isConstant && isFree(op))
    joinResets(op);
  if (fuse && isCheapToRepeat(op) && isReadByFewClusters(op))
    cloneIntoUsers(op);
  if (op->use_empty() && (mayJoin(op) || isFree(op) || view)) {
    op->erase();
    return;
  }
  // Views and constants that are left are no work.
  bool canJoin = !isConstant && !view && (mayJoin(op) || isFree(op));
  if (canJoin && !(fuse && (joinOnlyUser(op) || joinFirstUser(op) || joinUpdate(op))))
    startCluster(op);
  raiseDepths(op);
}

/// All users are regions, more than one but not many.
bool RegionClusters::isReadByFewClusters(Operation *op) const {
  constexpr size_t many = 4;
  size_t users = userClusters(op).size();
  return users > 1 && users <= many &&
         llvm::all_of(op->getUsers(), [&](Operation *user) { return clusterOf(user); });
}

/// One clone for each cluster that reads the result and can hold it.
void RegionClusters::cloneIntoUsers(Operation *op) {
  Operation *source = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr;
  // A view is worth its place only if what it views can join too.
  if (isa<graph::ReshapeOp>(op) && !(source && (mayJoin(source) || isFree(source))))
    return;
  for (Cluster *cluster : userClusters(op)) {
    Operation *clone = op->clone();
    block.getOperations().insertAfter(op->getIterator(), clone);
    position[clone] = position[op];
    auto inCluster = [&](OpOperand &use) { return clusterOf(use.getOwner()) == cluster; };
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : op->getResult(0).getUses())
      if (inCluster(use))
        uses.push_back(&use);
    for (OpOperand *use : uses)
      use->set(clone->getResult(0));
    if (tryJoin(clone, *cluster))
      continue;
    for (OpOperand *use : uses)
      use->set(op->getResult(0));
    clone->erase();
  }
}

std::vector<RegionClusters::Cluster *> RegionClusters::userClusters(Operation *op) const {
  llvm::SetVector<Cluster *> found;
  for (Operation *user : op->getUsers())
    if (Cluster *cluster = clusterOf(user))
      found.insert(cluster);
  std::vector<Cluster *> list(found.begin(), found.end());
  llvm::sort(list, [&](Cluster *a, Cluster *b) {
    return std::pair(position.lookup(a->ops.front()), a->index) <
           std::pair(position.lookup(b->ops.front()), b->index);
  });
  return list;
}

FailureOr<RegionDomain> RegionClusters::fit(ArrayRef<Operation *> ops) const {
  if (ops.size() > maxOps)
    return failure();
  FailureOr<RegionDomain> domain = analyseRegion(ops);
  if (failed(domain))
    return failure();
  llvm::SmallPtrSet<Value, 32> pieces, whole; // parts of concatenations, other inputs
  for (auto &[use, leaf] : domain->leaves)
    (leaf.window.isPiece ? pieces : whole).insert(use->get());
  size_t parts =
      llvm::count_if(pieces, [&](Value piece) { return !whole.contains(piece); });
  if (domain->inputs.size() - parts + domain->outputs.size() > maxOperands ||
      parts > maxPieces)
    return failure();
  return domain;
}

/// What is stored for later is not computed where it is read.
static bool wouldReadWide(Operation *op, ArrayRef<Operation *> cluster) {
  auto says = [](Operation *part, StringRef text) {
    auto mark = part->getAttrOfType<StringAttr>(graph::savedAttr);
    return mark && mark.getValue() == text;
  };
  return says(op, "store") &&
         llvm::any_of(cluster, [&](Operation *part) { return says(part, "load"); });
}

bool RegionClusters::tryJoin(Operation *op, Cluster &cluster) {
  if (wouldReadWide(op, cluster.ops))
    return false;
  std::vector<Operation *> ops{op}; // it comes before all of the cluster
  llvm::append_range(ops, cluster.ops);
  FailureOr<RegionDomain> domain = fit(ops);
  if (failed(domain))
    return false;
  bool losesUnits = domain->units < enoughUnits && domain->elements() > smallElements &&
                    domain->elements() > cluster.elements;
  if (losesUnits && mayJoin(op))
    return false;
  cluster.ops = std::move(ops);
  cluster.elements = domain->elements();
  cluster.units = domain->units;
  clusters[op] = &cluster;
  return true;
}

bool RegionClusters::joinOnlyUser(Operation *op) {
  std::vector<Cluster *> users = userClusters(op);
  bool only = users.size() == 1 && llvm::all_of(op->getUsers(), [&](Operation *user) {
                return clusterOf(user) == users[0];
              });
  return only && tryJoin(op, *users[0]);
}

bool RegionClusters::joinFirstUser(Operation *op) {
  // A single number stands between two regions; with one of them it would wait for what
  // it does not need.
  bool number = isa<graph::Elementwise>(op) && elementsOf(op->getResult(0)) == 1;
  for (Cluster *cluster : userClusters(op))
    if (!(number && cluster->elements > 1) && !wouldCycle(op, *cluster) &&
        tryJoin(op, *cluster))
      return true;
  return false;
}

/// New values of one parameter and its moments are computed together, from operands that
/// they share. Nothing comes behind either, so there is no cycle.
bool RegionClusters::joinUpdate(Operation *op) {
  StringRef name = updatedTensor(op);
  Cluster *cluster = name.empty() ? nullptr : updates.lookup(name);
  return cluster && tryJoin(op, *cluster);
}

/// Accumulated gradients start anew in the update that reads them, while they are in the
/// cache.
void RegionClusters::joinResets(Operation *constant) {
  for (OpOperand &use : llvm::make_early_inc_range(constant->getResult(0).getUses())) {
    auto write = dyn_cast<graph::WriteOp>(use.getOwner());
    if (!write || !write.getSymbol().starts_with("grad/"))
      continue;
    Cluster *cluster = updates.lookup(write.getSymbol().split('/').second);
    if (!cluster || cluster->elements != elementsOf(use.get()) ||
        llvm::any_of(cluster->ops, llvm::IsaPred<graph::ReduceOp>))
      continue; // or the old value may be read again, behind a sum
    Operation *clone = constant->clone();
    block.getOperations().insertAfter(constant->getIterator(), clone);
    position[clone] = position[constant];
    use.set(clone->getResult(0));
    if (tryJoin(clone, *cluster))
      continue;
    use.set(constant->getResult(0));
    clone->erase();
  }
}

bool RegionClusters::startCluster(Operation *op) {
  FailureOr<RegionDomain> domain = analyseRegion(ArrayRef(op));
  if (failed(domain))
    return false;
  owned.push_back(std::make_unique<Cluster>());
  owned.back()->index = static_cast<int64_t>(owned.size());
  owned.back()->ops = {op};
  owned.back()->elements = domain->elements();
  owned.back()->units = domain->units;
  clusters[op] = owned.back().get();
  if (StringRef name = updatedTensor(op); !name.empty())
    updates[name] = owned.back().get();
  return true;
}

int64_t RegionClusters::depthOf(Operation *op) const {
  Cluster *cluster = clusterOf(op);
  return cluster ? cluster->depth : loneDepth.lookup(op);
}

void RegionClusters::setDepth(Operation *op, int64_t depth) {
  if (Cluster *cluster = clusterOf(op))
    cluster->depth = depth;
  else
    loneDepth[op] = depth;
}

/// Restores the order of depths after `placed` was placed; only what it reads through
/// others that are placed can be too shallow then.
void RegionClusters::raiseDepths(Operation *placed) {
  auto together = [&](Operation *a, Operation *b) {
    return a == b || (clusterOf(a) && clusterOf(a) == clusterOf(b));
  };
  int64_t depth = std::max<int64_t>(depthOf(placed), 1);
  for (Operation *user : placed->getUsers())
    if (!together(placed, user))
      depth = std::max(depth, depthOf(user) + 1);
  if (depth == depthOf(placed))
    return;
  setDepth(placed, depth);
  SmallVector<Operation *> open{placed};
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    Cluster *cluster = clusterOf(op);
    for (Operation *member : cluster ? ArrayRef(cluster->ops) : ArrayRef(op))
      for (Value operand : member->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (!producer || depthOf(producer) == 0 || together(producer, op) ||
            depthOf(producer) > depthOf(op))
          continue;
        setDepth(producer, depthOf(op) + 1);
        open.push_back(producer);
      }
  }
}

/// True if some user of `op` outside of the cluster must run before the cluster.
bool RegionClusters::wouldCycle(Operation *op, const Cluster &cluster) const {
  SmallVector<Operation *> open;
  llvm::SmallPtrSet<Operation *, 32> seen;
  auto visit = [&](Operation *user) {
    bool mayReach = clusterOf(user) == &cluster || depthOf(user) > cluster.depth;
    if (mayReach && seen.insert(user).second)
      open.push_back(user);
  };
  for (Operation *user : op->getUsers())
    if (clusterOf(user) != &cluster)
      visit(user);
  while (!open.empty()) {
    Operation *next = open.pop_back_val();
    Cluster *other = clusterOf(next);
    if (other == &cluster)
      return true;
    if (other) // a cluster runs as a whole
      for (Operation *member : other->ops)
        if (seen.insert(member).second)
          llvm::for_each(member->getUsers(), visit);
    llvm::for_each(next->getUsers(), visit);
  }
  return false;
}

void RegionClusters::outline() {
  for (auto &cluster : owned)
    outlineCluster(*cluster);
  sortBlock(block);
}

void RegionClusters::outlineCluster(const Cluster &cluster) {
  FailureOr<RegionDomain> domain = analyseRegion(cluster.ops);
  assert(succeeded(domain) && "a cluster was analysed when it grew");
  SmallVector<Location> locs;
  SmallVector<Type> types;
  for (Operation *op : cluster.ops)
    locs.push_back(op->getLoc());
  for (Value output : domain->outputs)
    types.push_back(output.getType());
  OpBuilder builder(cluster.ops.back());
  auto region = builder.create<graph::RegionOp>(builder.getFusedLoc(locs), types,
                                                ValueRange(domain->inputs), StringAttr());
  Block &body = region.getBody().emplaceBlock();
  for (Value input : domain->inputs)
    body.addArgument(input.getType(), input.getLoc());
  for (Operation *op : cluster.ops)
    op->moveBefore(&body, body.end());
  for (auto [input, argument] : llvm::zip(domain->inputs, body.getArguments()))
    input.replaceUsesWithIf(
        argument, [&](OpOperand &use) { return use.getOwner()->getBlock() == &body; });
  builder.setInsertionPointToEnd(&body);
  builder.create<graph::YieldOp>(region.getLoc(), domain->outputs);
  for (auto [inside, outside] : llvm::zip(domain->outputs, region.getOutputs()))
    inside.replaceUsesWithIf(
        outside, [&](OpOperand &use) { return use.getOwner()->getBlock() != &body; });
}

} // namespace sluice
