#include "passes/PlanLaunches.h"

#include "passes/Collectives.h"

using namespace mlir;

namespace sluice {
namespace {

/// Equal keys are the same bytes of memory.
const void *rootKey(Operation *root) {
  if (auto state = dyn_cast<plan::StateBufferOp>(root))
    return state.getSymbolAttr().getAsOpaquePointer();
  return root;
}

template <typename Port> bool usedBy(plan::BufferOp buffer) {
  SmallVector<Value> open{buffer.getBuffer()};
  while (!open.empty())
    for (Operation *user : open.pop_back_val().getUsers()) {
      if (isa<Port>(user))
        return true;
      if (auto slice = dyn_cast<plan::SliceOp>(user))
        open.push_back(slice.getBuffer());
    }
  return false;
}

} // namespace

SmallVector<LaunchAccess> accessesOf(plan::LaunchOp launch) {
  SmallVector<LaunchAccess> accesses;
  for (auto stage : launch.getBody().front().getOps<plan::StageOp>()) {
    for (Value value : stage.getIns())
      accesses.push_back({plan::rangeOf(value), true, false});
    // What a kernel writes may be only part of the buffer, so the rest must survive.
    for (Value value : stage.getOuts())
      accesses.push_back({plan::rangeOf(value), false, true});
    for (Value value : stage.getScratch())
      accesses.push_back({plan::rangeOf(value), false, false});
  }
  return accesses;
}

bool conflict(const LaunchAccess &a, const LaunchAccess &b) {
  if (!a.written && !b.written)
    return false;
  return rootKey(a.range.root) == rootKey(b.range.root) &&
         a.range.offset < b.range.offset + b.range.size &&
         b.range.offset < a.range.offset + a.range.size;
}

SmallVector<plan::LaunchOp> launchesOf(plan::ProgramOp program) {
  return llvm::to_vector(program.queue().getBody().front().getOps<plan::LaunchOp>());
}

SmallVector<QueuedCopy> copiesOf(plan::ProgramOp program) {
  SmallVector<QueuedCopy> copies;
  plan::QueueOp queue = program.copyQueue();
  if (!queue)
    return copies;
  int64_t waited = 0;
  for (Operation &op : queue.getBody().front()) {
    if (auto wait = dyn_cast<plan::WaitOp>(op))
      waited = std::max<int64_t>(waited, wait.getValue());
    if (auto copy = dyn_cast<plan::CopyOp>(op))
      copies.push_back({copy, waited, 0});
  }
  int64_t launch = 0;
  size_t done = 0;
  for (Operation &op : program.queue().getBody().front()) {
    launch += isa<plan::LaunchOp>(op);
    if (auto wait = dyn_cast<plan::WaitOp>(op); wait && wait.getQueue() == "copy")
      for (; done < copies.size() && int64_t(done) < int64_t(wait.getValue()); ++done)
        copies[done].doneBy = launch;
  }
  for (; done < copies.size(); ++done)
    copies[done].doneBy = launch + 1;
  return copies;
}

bool isCollective(plan::LaunchOp launch) { return launch->hasAttr(collectiveNameAttr); }

SmallVector<LaunchAccess> accessesOf(plan::CollectiveOp collective) {
  SmallVector<LaunchAccess> accesses;
  // Sums of rows come about where the operands lie.
  bool overwrites = collective.getKind() == "reduce_scatter";
  for (Value value : collective.getIns())
    accesses.push_back({plan::rangeOf(value), true, overwrites});
  for (Value value : collective.getOuts())
    accesses.push_back({plan::rangeOf(value), false, true});
  return accesses;
}

SmallVector<QueuedCollective> collectivesOf(plan::ProgramOp program) {
  SmallVector<QueuedCollective> collectives;
  plan::QueueOp queue = program.commQueue();
  if (!queue)
    return collectives;
  int64_t waited = 0;
  for (Operation &op : queue.getBody().front()) {
    if (auto wait = dyn_cast<plan::WaitOp>(op))
      waited = std::max<int64_t>(waited, wait.getValue());
    if (auto collective = dyn_cast<plan::CollectiveOp>(op))
      collectives.push_back({collective, waited, 0});
  }
  int64_t launch = 0;
  size_t done = 0;
  for (Operation &op : program.queue().getBody().front()) {
    launch += isa<plan::LaunchOp>(op);
    auto wait = dyn_cast<plan::WaitOp>(op);
    if (wait && wait.getQueue() == queue.getSymName())
      for (; done < collectives.size() && int64_t(done) < int64_t(wait.getValue());
           ++done)
        collectives[done].doneBy = launch;
  }
  for (; done < collectives.size(); ++done)
    collectives[done].doneBy = launch + 1;
  return collectives;
}

StringRef bufferNames(plan::BufferOp buffer) {
  auto names = buffer->getAttrOfType<StringAttr>(bufferNamesAttr);
  return names ? names.getValue() : buffer.getLabel();
}

bool isInput(plan::BufferOp buffer) { return usedBy<plan::InputOp>(buffer); }
bool isOutput(plan::BufferOp buffer) { return usedBy<plan::OutputOp>(buffer); }

} // namespace sluice
