#include "passes/StepProblem.h"

#include "passes/CodedProducts.h"
#include "passes/EntryFunctions.h"
#include "passes/LaunchCosts.h"
#include "passes/NamePatterns.h"
#include "passes/NarrowReads.h"
#include "passes/PlanLaunches.h"
#include "passes/RegionDomain.h"
#include "passes/RegionResults.h"
#include "passes/RowBlocks.h"
#include "passes/TensorFacts.h"
#include "passes/lowering/Lowerings.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/FormatVariadic.h"

#include <functional>

using namespace mlir;

namespace sluice {
namespace {

/// Slices of whole leading rows are ranges of bytes.
bool isContiguous(graph::SliceOp slice) {
  auto from = graph::tensorType(slice.getX()), to = graph::tensorType(slice.getY());
  return from.getRank() == to.getRank() &&
         (from.getRank() == 0 ||
          from.getShape().drop_front() == to.getShape().drop_front()) &&
         llvm::all_of(slice.getSteps(), [](int64_t step) { return step == 1; });
}

bool readByProducts(Operation *op);

/// A product, or what it reads through.
bool isProductOrView(Operation *op) {
  if (auto reshape = dyn_cast<graph::ReshapeOp>(op)) {
    auto sizes = [](Value value) {
      SmallVector<int64_t> kept;
      for (int64_t size : graph::tensorType(value).getShape())
        if (size != 1)
          kept.push_back(size);
      return kept;
    };
    return sizes(reshape.getX()) == sizes(reshape.getY()) && readByProducts(op);
  }
  if (isa<graph::TransposeOp, graph::SliceOp>(op))
    return readByProducts(op);
  return isa<graph::ContractOp, graph::AttentionOp, graph::AttentionGradOp>(op) ||
         codedProduct(op);
}

bool readByProducts(Operation *op) {
  return !op->hasAttr(copyAttr) && llvm::all_of(op->getUsers(), isProductOrView);
}

/// What lowers to other names for the bytes of its operand.
bool isView(Operation *op) {
  if (isa<graph::ReshapeOp>(op))
    return !op->hasAttr(copyAttr);
  if (isReadNarrow(op))
    return true;
  if (auto slice = dyn_cast<graph::SliceOp>(op); slice && isContiguous(slice))
    return true;
  // Products read through these.
  return isa<graph::TransposeOp, graph::SliceOp>(op) && readByProducts(op);
}

/// What renames bytes between an attention's gradients and the concatenation that all of
/// them, and only they, are written into side by side; that comes last. Empty if there is
/// none.
SmallVector<Operation *> joinBehind(graph::AttentionGradOp grad) {
  SmallVector<Operation *> chain;
  Operation *join = nullptr;
  for (Value value : grad->getResults()) {
    Operation *user = nullptr;
    while (value.hasOneUse()) {
      user = *value.getUsers().begin();
      if (!isa<graph::TransposeOp>(user) &&
          !(isa<graph::ReshapeOp>(user) && !user->hasAttr(copyAttr)))
        break;
      chain.push_back(user);
      value = user->getResult(0);
    }
    if (!value.hasOneUse() || !isa<graph::ConcatOp>(user) || (join && join != user))
      return {};
    join = user;
  }
  if (join->getNumOperands() != grad->getNumResults())
    return {};
  chain.push_back(join);
  return chain;
}

bool lies(Operation *op) { return isa<graph::ReadOp, graph::ConstantOp>(op); }

/// What the loss depends on. A region may compute a part of the loss beside gradients; it
/// is none, since it has to wait for them.
llvm::SmallPtrSet<Operation *, 32> lossParts(func::FuncOp entry) {
  llvm::SmallPtrSet<Operation *, 32> reached, parts;
  llvm::SmallPtrSet<Value, 32> seen;
  SmallVector<Value> open;
  for (StringRef name : {"loss_sum", "loss_count"})
    if (Value value = resultNamed(entry, name))
      open.push_back(value);
  while (!open.empty()) {
    auto result = dyn_cast<OpResult>(open.pop_back_val());
    if (!result || !seen.insert(result).second)
      continue;
    reached.insert(result.getOwner());
    llvm::append_range(open, sourcesOf(result));
  }
  for (Operation &op : entry.getBody().front().without_terminator()) {
    bool waits = llvm::any_of(op.getOperands(), [&](Value operand) {
      return operand.getDefiningOp() && !parts.contains(operand.getDefiningOp());
    });
    waits |= op.hasAttr(rowBlockAttr);
    if (lies(&op) || ((reached.contains(&op) || isView(&op)) && !waits))
      parts.insert(&op);
  }
  return parts;
}

/// True if few operations read what `op` leads to, all of them regions or sums over
/// ranks, and the last write state: an optimizer's update, or a statistic.
bool leadsToStateOnly(Operation *op) {
  constexpr size_t few = 12;
  llvm::SmallPtrSet<Operation *, 16> reached;
  SmallVector<Operation *> open{op};
  while (!open.empty() && reached.size() <= few) {
    Operation *next = open.pop_back_val();
    if (!isa<graph::RegionOp, graph::WriteOp, graph::Collective>(next) && !isView(next))
      return false;
    if (codedProduct(next))
      return false;
    for (Operation *user : next->getUsers())
      if (reached.insert(user).second)
        open.push_back(user);
  }
  return reached.size() <= few;
}

} // namespace

func::FuncOp trainingEntry(ModuleOp module) {
  auto step = module.lookupSymbol<func::FuncOp>("step");
  return step ? step : module.lookupSymbol<func::FuncOp>("micro");
}

StepProblem::StepProblem(func::FuncOp entry, ArrayRef<std::string> keep)
    : entry(entry), rates(deviceRates(entry->getParentOfType<ModuleOp>())) {
  Block &block = entry.getBody().front();
  collectViews(block);
  llvm::SmallPtrSet<Operation *, 32> forward = lossParts(entry);
  ops = forwardFirst(block);
  for (Operation *op : ops)
    addOp(op, !forward.contains(op));
  markStateAndResults();
  markKept(keep);
  // The entry in the order of the problem.
  clones.assign(ops.size(), 0);
  for (Operation *op : ops)
    operands.emplace_back(op->getOperands());
  Operation *terminator = block.getTerminator();
  SmallVector<Operation *> lying;
  for (Operation &op : block.without_terminator())
    if (lies(&op))
      lying.push_back(&op);
  for (Operation *op : lying)
    op->moveBefore(terminator);
  for (auto &[root, list] : viewsOf)
    if (!root.getDefiningOp() || lies(root.getDefiningOp()))
      for (Operation *view : list)
        view->moveBefore(terminator);
  for (size_t i = 0; i < ops.size(); ++i)
    runFirst(i);
}

Value StepProblem::rootOf(Value value) const {
  while (value.getDefiningOp() && views.contains(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto join = joined.find(value);
  return join == joined.end() ? value : join->second;
}

void StepProblem::collectViews(Block &block) {
  for (auto grad : block.getOps<graph::AttentionGradOp>()) {
    SmallVector<Operation *> chain = joinBehind(grad);
    for (Operation *op : chain)
      views[op] = 1;
    for (Value result : grad->getResults())
      if (!chain.empty())
        joined[result] = grad->getResult(0);
    if (!chain.empty())
      joinedBytes[grad->getResult(0)] =
          plan::tensorBytes(chain.back()->getResult(0).getType());
  }
  for (Operation &op : block.without_terminator())
    if (views.contains(&op) || isView(&op)) {
      views[&op] = 1;
      viewsOf[rootOf(op.getResult(0))].push_back(&op);
    }
}

std::vector<Operation *> StepProblem::forwardFirst(Block &block) {
  llvm::SmallPtrSet<Operation *, 32> forward = lossParts(entry), placed, early;
  std::vector<Operation *> order, rest;
  for (Operation &op : block.without_terminator()) {
    if (lies(&op) || views.contains(&op))
      placed.insert(&op);
    else if (forward.contains(&op))
      order.push_back(&op), placed.insert(&op);
    else {
      rest.push_back(&op);
      if (leadsToStateOnly(&op))
        early.insert(&op);
    }
  }
  auto isReady = [&](Operation *op) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *producer = rootOf(operand).getDefiningOp();
      return !producer || placed.contains(producer);
    });
  };
  // Users through views; what became ready and leads to the state follows at once.
  std::function<void(Operation *)> place = [&](Operation *op) {
    order.push_back(op);
    placed.insert(op);
    SmallVector<Operation *> open(op->getUsers());
    llvm::sort(open, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    for (size_t i = 0; i < open.size(); ++i) {
      if (views.contains(open[i]))
        llvm::append_range(open, open[i]->getUsers());
      else if (early.contains(open[i]) && !placed.contains(open[i]) && isReady(open[i]))
        place(open[i]);
    }
  };
  for (Operation *op : rest)
    if (early.contains(op) && !placed.contains(op) && isReady(op))
      place(op);
  for (Operation *op : rest)
    if (!placed.contains(op))
      place(op);
  return order;
}

int32_t StepProblem::indexOf(Value value) const {
  auto known = indices.find(rootOf(value));
  return known == indices.end() ? -1 : known->second;
}

int32_t StepProblem::valueOf(Value root) {
  auto [known, added] = indices.try_emplace(root, roots.size());
  if (added) {
    roots.push_back(root);
    RecomputeProblem::Value value;
    auto join = joinedBytes.find(root);
    value.sizeBytes =
        join == joinedBytes.end() ? plan::tensorBytes(root.getType()) : join->second;
    value.preexisting = !root.getDefiningOp();
    problem.values.push_back(value);
  }
  return known->second;
}

void StepProblem::addOp(Operation *op, bool backward) {
  RecomputeProblem::Op planned;
  planned.costUs = operationUs(op, rates);
  planned.backward = backward;
  // What writes or meets other ranks does so once.
  planned.recomputable = isMemoryEffectFree(op);
  for (Value operand : op->getOperands()) {
    Value root = rootOf(operand);
    bool isState = root.getDefiningOp() && lies(root.getDefiningOp());
    if (!isState && !llvm::is_contained(planned.inputs, valueOf(root)))
      planned.inputs.push_back(valueOf(root));
  }
  for (Value result : op->getResults())
    if (rootOf(result) == result)
      planned.outputs.push_back(valueOf(result));
  if (isa<graph::WriteOp>(op))
    planned.costUs = 0; // the producer writes the state's own bytes
  problem.ops.push_back(std::move(planned));
}

void StepProblem::markStateAndResults() {
  for (auto write : entry.getBody().front().getOps<graph::WriteOp>())
    if (auto known = indices.find(rootOf(write.getValue())); known != indices.end())
      problem.values[known->second].sizeBytes = 0;
  for (Value result : returnOf(entry).getOperands())
    if (auto known = indices.find(rootOf(result)); known != indices.end())
      problem.values[known->second].liveAtEnd = true;
}

void StepProblem::markKept(ArrayRef<std::string> keep) {
  for (const std::string &text : keep) {
    bool any = false;
    for (auto [i, op] : llvm::enumerate(ops)) {
      bool named = false;
      op->walk([&](Operation *inner) { named |= namesAny(text, inner->getLoc()); });
      if (named)
        for (int32_t value : problem.ops[i].outputs)
          problem.values[value].keep = true;
      any |= named;
    }
    if (!any)
      unmatchedKeeps.push_back(text);
  }
}

std::string StepProblem::keepError() const {
  if (unmatchedKeeps.empty())
    return {};
  std::vector<std::string> names;
  for (Operation *op : ops)
    op->walk([&](Operation *inner) {
      visitNames(inner->getLoc(), [&](StringRef name) { names.push_back(name.str()); });
    });
  return "'memory.keep' has '" + unmatchedKeeps.front() +
         "', which names nothing that the training step computes" +
         nearestNames(unmatchedKeeps.front(), names);
}

std::string StepProblem::valueName(int32_t value) const {
  return valueNames(roots[value]);
}

std::vector<std::pair<std::string, std::string>>
StepProblem::decisions(const RecomputeSolution &solution) const {
  std::vector<std::pair<std::string, std::string>> lines;
  std::vector<int64_t> runs(ops.size(), 0);
  for (const Execution &execution : solution.schedule)
    runs[execution.op] += execution.again;
  for (size_t op = 0; op < ops.size(); ++op)
    for (int32_t value : problem.ops[op].outputs)
      if (runs[op] > 0)
        lines.push_back(
            {valueName(value),
             llvm::formatv("recomputed {0} times for the backward part: its "
                           "{1} bytes are free until then, at {2:F1} us a run",
                           runs[op], problem.values[value].sizeBytes,
                           problem.ops[op].costUs)
                 .str()});
  for (int32_t value : solution.kept)
    for (size_t op = 0; op < ops.size(); ++op)
      if (llvm::is_contained(problem.ops[op].outputs, value))
        lines.push_back(
            {valueName(value),
             llvm::formatv("kept until the backward part reads it: {0} bytes; a run more "
                           "would cost {1:F1} us{2}",
                           problem.values[value].sizeBytes, problem.ops[op].costUs,
                           problem.values[value].keep ? " ('memory.keep')" : "")
                 .str()});
  return lines;
}

/// The value that an operation which reads `value` now has to read.
Value StepProblem::current(Value value) {
  if (Value instance = latest.lookup(value))
    return instance;
  Operation *view = value.getDefiningOp();
  if (!view || !views.contains(view))
    return value;
  Value base = current(view->getOperand(0));
  if (base == view->getOperand(0))
    return value;
  Value &clone = viewClones[{value, base}];
  if (!clone) {
    OpBuilder builder(returnOf(entry));
    Operation *copy = builder.clone(*view);
    copy->setOperand(0, base);
    clone = copy->getResult(0);
  }
  return clone;
}

void StepProblem::runFirst(int32_t op) {
  Operation *terminator = returnOf(entry);
  for (auto [i, operand] : llvm::enumerate(operands[op]))
    ops[op]->setOperand(i, current(operand));
  ops[op]->moveBefore(terminator);
  for (Value result : ops[op]->getResults())
    if (auto list = viewsOf.find(result); list != viewsOf.end())
      for (Operation *view : list->second)
        view->moveBefore(terminator);
}

void StepProblem::runAgain(int32_t op) {
  SmallVector<Value> inputs; // their views are cloned before what reads them
  for (Value operand : operands[op])
    inputs.push_back(current(operand));
  OpBuilder builder(returnOf(entry));
  Operation *clone = builder.clone(*ops[op]);
  clone->setAttr(recomputeAttr, builder.getI64IntegerAttr(++clones[op]));
  clone->setAttr(runAttr, builder.getDenseI64ArrayAttr({op, clones[op]}));
  clone->setOperands(inputs);
  for (auto [first, again] : llvm::zip_equal(ops[op]->getResults(), clone->getResults()))
    latest[first] = again;
  if (auto region = dyn_cast<graph::RegionOp>(clone))
    clonedRegions.push_back(region);
}

void StepProblem::apply(const RecomputeSolution &solution) {
  for (auto [i, op] : llvm::enumerate(ops))
    op->setAttr(runAttr, DenseI64ArrayAttr::get(op->getContext(), {int64_t(i), 0}));
  for (const Execution &execution : solution.schedule)
    execution.again ? runAgain(execution.op) : runFirst(execution.op);
  for (OpOperand &operand : returnOf(entry)->getOpOperands())
    operand.set(current(operand.get()));
  for (graph::RegionOp region : clonedRegions)
    dropUnusedResults(region);
  entry->setAttr(tensorFactsAttr, tensorFacts(*this, solution));
}

} // namespace sluice
