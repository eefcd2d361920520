#include "passes/QueueVerifier.h"

#include "passes/PlanLaunches.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace sluice {
namespace {

class QueueVerifier {
public:
  explicit QueueVerifier(plan::ProgramOp program)
      : program(program), launches(launchesOf(program)), copies(copiesOf(program)) {}

  LogicalResult run() {
    SmallVector<plan::QueueOp> queues{program.queue()};
    for (plan::QueueOp queue : {program.copyQueue(), program.commQueue()})
      if (queue)
        queues.push_back(queue);
    if (queues.size() == 1)
      return success();
    for (plan::QueueOp queue : queues)
      if (failed(verifySignals(queue)))
        return failure();
    if (failed(verifyProgress(queues)))
      return failure();
    bool sound = succeeded(verifyCollectives(program));
    for (size_t c = 0; c < copies.size(); ++c)
      sound &= succeeded(verifyCopy(c));
    return success(sound && succeeded(verifyPairs()));
  }

private:
  /// A signal tells the count of what its queue has done.
  static LogicalResult verifySignals(plan::QueueOp queue) {
    int64_t done = 0;
    for (Operation &op : queue.getBody().front()) {
      done += isa<plan::LaunchOp, plan::CopyOp, plan::CollectiveOp>(op);
      auto signal = dyn_cast<plan::SignalOp>(op);
      if (signal && int64_t(signal.getValue()) != done)
        return op.emitError("signals ")
               << signal.getValue() << " when " << done << " are done";
    }
    return success();
  }

  /// Runs all queues; none may wait for a signal that does not come.
  static LogicalResult verifyProgress(MutableArrayRef<plan::QueueOp> queues) {
    llvm::StringMap<int64_t> signalled;
    SmallVector<Block::iterator> next;
    auto blockOf = [](plan::QueueOp queue) -> Block & { return queue.getBody().front(); };
    for (plan::QueueOp queue : queues)
      next.push_back(blockOf(queue).begin());
    for (bool moved = true; moved;) {
      moved = false;
      for (auto [queue, at] : llvm::zip_equal(queues, next))
        for (; at != blockOf(queue).end(); ++at, moved = true) {
          if (auto wait = dyn_cast<plan::WaitOp>(*at);
              wait && int64_t(wait.getValue()) > signalled.lookup(wait.getQueue()))
            break;
          if (auto signal = dyn_cast<plan::SignalOp>(*at))
            signalled[queue.getSymName()] = signal.getValue();
        }
    }
    for (auto [queue, at] : llvm::zip_equal(queues, next))
      if (at != blockOf(queue).end())
        return at->emitError("waits for ever: the other queue has signalled ")
               << signalled.lookup(cast<plan::WaitOp>(*at).getQueue());
    return success();
  }

  LogicalResult verifyCopy(size_t index) {
    const QueuedCopy &copy = copies[index];
    plan::CopyOp op = copy.op;
    plan::BufferRange from = plan::rangeOf(op.getSource()),
                      to = plan::rangeOf(op.getTarget());
    if (isOnHost(from.root) == isOnHost(to.root))
      return op.emitError("does not go from one memory to the other");
    if (from.size != to.size)
      return op.emitError("moves ") << from.size << " bytes to " << to.size;
    for (const plan::BufferRange &range : {from, to})
      if (failed(verifyLife(index, range.root)) || failed(verifyLaunches(index, range)))
        return failure();
    return success();
  }

  LogicalResult verifyLife(size_t index, Operation *root) {
    auto buffer = dyn_cast<plan::BufferOp>(root);
    if (!buffer || !buffer.getFirst())
      return success();
    int64_t first = *buffer.getFirst(), last = *buffer.getLast();
    int64_t begin = copies[index].waitLaunches, end = copies[index].doneBy - 1;
    if (buffer.isOnHost())
      begin = end = static_cast<int64_t>(index);
    // Nothing runs beside a copy that the next launch waits for.
    bool alone = !buffer.isOnHost() && begin > end;
    if (!alone && (begin < first || end > last))
      return copies[index].op.emitError("may run in [")
             << begin << ", " << end << "], but '" << buffer.getLabel()
             << "' is live in [" << first << ", " << last << "]";
    return success();
  }

  bool isOrdered(size_t launch, size_t copy) const {
    return int64_t(launch) < copies[copy].waitLaunches ||
           int64_t(launch) >= copies[copy].doneBy;
  }

  LogicalResult verifyLaunches(size_t index, const plan::BufferRange &range) {
    bool written = plan::rangeOf(copies[index].op.getTarget()).root == range.root;
    LaunchAccess moved{range, !written, written};
    for (auto [l, launch] : llvm::enumerate(launches))
      for (const LaunchAccess &access : accessesOf(launch)) {
        LaunchAccess used = access;
        used.written |= !access.read; // a workspace
        if (conflict(moved, used) && !isOrdered(l, index))
          return copies[index].op.emitError("and launch ")
                 << l << " touch the same bytes, and no wait orders them";
      }
    return success();
  }

  /// Buffers that take the same bytes one after the other: the queue of copies is in that
  /// order too.
  LogicalResult verifyPairs() {
    struct Life {
      plan::BufferOp buffer;
      size_t firstCopy, lastCopy;
    };
    llvm::MapVector<Operation *, Life> lives;
    for (auto [c, copy] : llvm::enumerate(copies))
      for (Value end : {copy.op.getSource(), copy.op.getTarget()})
        if (auto buffer = dyn_cast<plan::BufferOp>(plan::rangeOf(end).root);
            buffer && buffer.getFirst() && buffer.getOffset()) {
          auto [known, added] = lives.insert({buffer, {buffer, c, c}});
          known->second.lastCopy = c;
        }
    for (auto &[a, early] : lives)
      for (auto &[b, late] : lives)
        if (early.buffer.isOnHost() == late.buffer.isOnHost() &&
            share(early.buffer, late.buffer) &&
            *early.buffer.getLast() < *late.buffer.getFirst() &&
            early.lastCopy > late.firstCopy)
          return copies[late.firstCopy].op.emitError("comes before a copy of '")
                 << early.buffer.getLabel() << "', which has the same bytes earlier";
    return success();
  }

  static bool share(plan::BufferOp a, plan::BufferOp b) {
    int64_t from = *a.getOffset(), other = *b.getOffset();
    return from < other + int64_t(b.getSize()) && other < from + int64_t(a.getSize());
  }

  plan::ProgramOp program;
  SmallVector<plan::LaunchOp> launches;
  SmallVector<QueuedCopy> copies;
};

} // namespace

bool isOnHost(Operation *root) {
  if (auto buffer = dyn_cast<plan::BufferOp>(root))
    return buffer.isOnHost();
  plan::StateOp symbol = plan::stateOf(cast<plan::StateBufferOp>(root));
  return symbol && symbol.isOnHost();
}

LogicalResult verifyQueues(plan::ProgramOp program) {
  return QueueVerifier(program).run();
}

} // namespace sluice
