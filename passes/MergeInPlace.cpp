// Results that take the bytes of an operand.

#include "passes/LiveRanges.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace sluice {
namespace {

class InPlaceMerger {
public:
  explicit InPlaceMerger(plan::ProgramOp program)
      : program(program), ranges(liveRanges(program)) {}

  void run() {
    int64_t instant = 0;
    for (plan::LaunchOp launch : launchesOf(program)) {
      for (auto stage : launch.getBody().front().getOps<plan::StageOp>())
        merge(stage, instant);
      ++instant;
    }
  }

private:
  void merge(plan::StageOp stage, int64_t instant) {
    ArrayRef<int64_t> pairs = stage.getInPlace().value_or(ArrayRef<int64_t>());
    for (size_t i = 0; i < pairs.size(); i += 2) {
      Value in = stage.getIns()[pairs[i]], out = stage.getOuts()[pairs[i + 1]];
      auto from = in.getDefiningOp<plan::BufferOp>(),
           to = out.getDefiningOp<plan::BufferOp>();
      if (!from || !to || from == to || from.getSize() != to.getSize())
        continue;
      // A port keeps its own bytes. In a chain the stage before has written just the rows
      // that this one reads; any other access to either would see the other's values.
      auto before = dyn_cast_or_null<plan::StageOp>(stage->getPrevNode());
      bool chained = before && llvm::is_contained(before.getOuts(), in);
      if (isInput(from) || isOutput(from) || ranges[from].last != instant ||
          ranges[to].first != instant || accessCount(stage, in) != 1 + chained ||
          accessCount(stage, out) != 1)
        continue;
      ranges[from].last = ranges[to].last;
      from->setAttr(bufferNamesAttr,
                    StringAttr::get(from.getContext(), joined(from, to)));
      if (to.getCategory() == "gradients" || to.getCategory() == "io") {
        from.setCategoryAttr(to.getCategoryAttr());
        from.setLabelAttr(to.getLabelAttr());
      }
      to.getBuffer().replaceAllUsesWith(in);
      to.erase();
    }
    stage.removeInPlaceAttr();
  }

  /// The bytes hold several values in turn: "a, b".
  static std::string joined(plan::BufferOp from, plan::BufferOp to) {
    SmallVector<StringRef> names, more;
    bufferNames(from).split(names, ", ");
    bufferNames(to).split(more, ", ");
    for (StringRef name : more)
      if (!llvm::is_contained(names, name))
        names.push_back(name);
    return llvm::join(names, ", ");
  }

  /// Operands of the stage's launch that lie in the buffer.
  static int64_t accessCount(plan::StageOp stage, Value buffer) {
    Operation *root = plan::rangeOf(buffer).root;
    return llvm::count_if(accessesOf(stage->getParentOfType<plan::LaunchOp>()),
                          [&](auto &access) { return access.range.root == root; });
  }

  plan::ProgramOp program;
  LiveRanges ranges;
};

} // namespace

void mergeInPlace(plan::ProgramOp program) { InPlaceMerger(program).run(); }

} // namespace sluice
