// What collectives beside launches must keep to.

#include "ir/graph/RankRows.h"
#include "passes/Collectives.h"
#include "passes/QueueVerifier.h"

using namespace mlir;

namespace sluice {
namespace {

class CollectiveVerifier {
public:
  explicit CollectiveVerifier(plan::ProgramOp program)
      : program(program), launches(launchesOf(program)),
        collectives(collectivesOf(program)) {}

  LogicalResult run() {
    bool sound = true;
    for (const QueuedCollective &collective : collectives)
      sound &= succeeded(verify(collective));
    return success(sound);
  }

private:
  LogicalResult verify(const QueuedCollective &collective) {
    plan::CollectiveOp op = collective.op;
    SmallVector<LaunchAccess> accesses = accessesOf(op);
    if (failed(verifySizes(op)) || failed(verifyParts(op)))
      return failure();
    for (const LaunchAccess &access : accesses) {
      if (isOnHost(access.range.root))
        return op.emitError("reads or writes the host's memory");
      if (failed(verifyLife(collective, access.range.root)) ||
          failed(verifyLaunches(collective, access)) || failed(verifyCopies(op, access)))
        return failure();
    }
    return success();
  }

  static LogicalResult verifySizes(plan::CollectiveOp op) {
    auto rows = op->getAttrOfType<DenseI64ArrayAttr>(plan::collectiveRowsAttr);
    bool gathers = op.getKind() == "all_gather";
    auto module = op->getParentOfType<ModuleOp>();
    auto ranks = module ? module->getAttrOfType<IntegerAttr>(ranksAttr) : nullptr;
    for (auto [i, in] : llvm::enumerate(op.getIns())) {
      int64_t from = plan::rangeOf(in).size, to = plan::rangeOf(op.getOuts()[i]).size;
      if (!rows) {
        if (from != to)
          return op.emitError("adds ") << from << " bytes to give " << to;
        continue;
      }
      int64_t whole = gathers ? to : from, part = gathers ? from : to;
      int64_t own = graph::RankRows{rows[i], ranks ? ranks.getInt() : 1}.most();
      if (rows[i] < 1 || whole % rows[i] != 0 || part != whole / rows[i] * own)
        return op.emitError("deals out ")
               << whole << " bytes in " << rows[i] << " rows as " << part
               << " bytes for each rank";
    }
    return success();
  }

  /// Parts are written while others are still to be read.
  static LogicalResult verifyParts(plan::CollectiveOp op) {
    auto access = [](Value value, bool isWritten) {
      return LaunchAccess{plan::rangeOf(value), !isWritten, isWritten};
    };
    for (size_t a = 0; a < op.getOuts().size(); ++a)
      for (size_t b = 0; b < op.getIns().size(); ++b) {
        bool isOwn = a == b && op.getOuts()[a] == op.getIns()[a];
        bool meet =
            conflict(access(op.getOuts()[a], true), access(op.getIns()[b], false));
        bool written = a != b && conflict(access(op.getOuts()[a], true),
                                          access(op.getOuts()[b], true));
        if ((meet && !isOwn) || written)
          return op.emitError("has parts that share bytes: ") << a << " and " << b;
      }
    return success();
  }

  static LogicalResult verifyLife(const QueuedCollective &collective, Operation *root) {
    auto buffer = dyn_cast<plan::BufferOp>(root);
    if (!buffer || !buffer.getFirst())
      return success();
    int64_t first = *buffer.getFirst(), last = *buffer.getLast();
    int64_t begin = collective.waitLaunches, end = std::max(begin, collective.doneBy - 1);
    plan::CollectiveOp op = collective.op;
    if (begin < first || end > last)
      return op.emitError("may run in [")
             << begin << ", " << end << "], but '" << buffer.getLabel()
             << "' is live in [" << first << ", " << last << "]";
    return success();
  }

  LogicalResult verifyLaunches(const QueuedCollective &collective,
                               const LaunchAccess &moved) {
    plan::CollectiveOp op = collective.op;
    for (auto [l, launch] : llvm::enumerate(launches)) {
      bool ordered =
          int64_t(l) < collective.waitLaunches || int64_t(l) >= collective.doneBy;
      for (LaunchAccess used : accessesOf(launch)) {
        used.written |= !used.read; // a workspace
        if (!ordered && conflict(moved, used))
          return op.emitError("and launch ")
                 << l << " touch the same bytes, and no wait orders them";
      }
    }
    return success();
  }

  LogicalResult verifyCopies(plan::CollectiveOp op, const LaunchAccess &moved) {
    for (const QueuedCopy &copy : copiesOf(program)) {
      plan::CopyOp copyOp = copy.op;
      for (Value end : {copyOp.getSource(), copyOp.getTarget()})
        if (conflict(moved, {plan::rangeOf(end), true, true}))
          return op.emitError("and a copy touch the same bytes");
    }
    return success();
  }

  plan::ProgramOp program;
  SmallVector<plan::LaunchOp> launches;
  SmallVector<QueuedCollective> collectives;
};

} // namespace

LogicalResult verifyCollectives(plan::ProgramOp program) {
  return CollectiveVerifier(program).run();
}

} // namespace sluice
