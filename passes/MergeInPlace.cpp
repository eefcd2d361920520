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
      auto from = dyn_cast<plan::BufferOp>(plan::rangeOf(in).root),
           to = dyn_cast<plan::BufferOp>(plan::rangeOf(out).root);
      if (!from || !to || from == to || from.getSize() != to.getSize())
        continue;
      bool isWhole = in == from.getBuffer() && out == to.getBuffer();
      // A port keeps its own bytes. In a chain the stage before has written just the rows
      // that this one reads; any other access to either would see the other's values.
      auto before = dyn_cast_or_null<plan::StageOp>(stage->getPrevNode());
      bool chained = before && llvm::is_contained(before.getOuts(), in);
      if (isInput(from) || isOutput(from) || ranges[from].last != instant ||
          ranges[to].first != instant)
        continue;
      bool isOnly = isWhole && accessCount(stage, in) == 1 + chained &&
                    accessCount(stage, out) == 1;
      if (!isOnly && !areParts(stage, pairs, from, to))
        continue;
      ranges[from].last = ranges[to].last;
      from->setAttr(bufferNamesAttr,
                    StringAttr::get(from.getContext(), joined(from, to)));
      if (to.getCategory() == "gradients" || to.getCategory() == "io") {
        from.setCategoryAttr(to.getCategoryAttr());
        from.setLabelAttr(to.getLabelAttr());
      }
      to.getBuffer().replaceAllUsesWith(from.getBuffer());
      to.erase();
    }
    stage.removeInPlaceAttr();
  }

  /// A launch of one stage that reads parts of a buffer (queries, keys and values) and
  /// writes the same parts of another (their gradients), each paired with its own.
  static bool areParts(plan::StageOp stage, ArrayRef<int64_t> pairs, plan::BufferOp from,
                       plan::BufferOp to) {
    auto isAt = [](Value value, Operation *root) {
      return plan::rangeOf(value).root == root;
    };
    int64_t paired = 0;
    for (size_t i = 0; i < pairs.size(); i += 2) {
      Value in = stage.getIns()[pairs[i]], out = stage.getOuts()[pairs[i + 1]];
      if (!isAt(in, from) && !isAt(out, to))
        continue;
      if (!isAt(in, from) || !isAt(out, to) ||
          plan::rangeOf(in).offset != plan::rangeOf(out).offset)
        return false;
      ++paired;
    }
    return llvm::hasSingleElement(stage->getBlock()->getOperations()) &&
           accessCount(stage, from.getBuffer()) == paired &&
           accessCount(stage, to.getBuffer()) == paired;
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
