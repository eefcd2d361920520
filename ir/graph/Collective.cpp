// What ranks do together. A run of several ranks at once is `interpretRanks`; alone, a
// rank is all there is.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Collective.cpp.inc"

namespace sluice::graph {

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  results.push_back(adaptor.getX().getType());
  return success();
}

LogicalResult AllReduceOp::evaluate(Evaluation &eval) {
  eval.result(0) = eval.operand(0);
  return success();
}

StringRef AllReduceOp::collectiveName() { return getName(); }

template <typename T, typename Round>
static void addTree(ArrayRef<std::vector<T> *> ranks, Round round) {
  for (size_t step = 1; step < ranks.size(); step *= 2)
    for (size_t r = 0; r + step < ranks.size(); r += 2 * step)
      for (auto [left, right] : llvm::zip_equal(*ranks[r], *ranks[r + step]))
        left = round(left + right);
}

LogicalResult AllReduceOp::evaluateRanks(MutableArrayRef<Evaluation> ranks) {
  SmallVector<std::vector<double> *> reals;
  SmallVector<std::vector<int64_t> *> integers;
  for (Evaluation &rank : ranks) {
    rank.result(0) = rank.operand(0);
    reals.push_back(&rank.result(0).reals);
    integers.push_back(&rank.result(0).integers);
  }
  addTree<double>(reals, [&](double x) { return ranks.front().round(x); });
  addTree<int64_t>(integers, [](int64_t x) { return x; });
  for (Evaluation &rank : ranks.drop_front())
    rank.result(0) = ranks.front().result(0);
  return success();
}

} // namespace sluice::graph
