// What ranks do together. A run of several ranks at once is `interpretRanks`; alone, a
// rank is all there is.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/RankRows.h"
#include "ir/graph/Shapes.h"

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

// --- rows of ranks

static LogicalResult checkRanks(std::optional<Location> loc, StringRef name,
                                RankedTensorType x, int64_t ranks) {
  if (ranks < 1)
    return emitOptionalError(loc, "'", name, "' is for ", ranks,
                             " ranks, expected 1 or more");
  if (x.getRank() < 1)
    return emitOptionalError(loc, "'", name, "' has a scalar, expected rows");
  return success();
}

static Type withRows(RankedTensorType type, int64_t rows) {
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = rows;
  return type.clone(shape);
}

LogicalResult ReduceScatterOp::inferReturnTypes(MLIRContext *,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &results) {
  auto x = cast<RankedTensorType>(adaptor.getX().getType());
  int64_t ranks = adaptor.getRanks();
  if (failed(checkRanks(loc, "reduce_scatter", x, ranks)))
    return failure();
  results.push_back(withRows(x, RankRows{x.getDimSize(0), ranks}.most()));
  return success();
}

LogicalResult AllGatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  auto x = cast<RankedTensorType>(adaptor.getX().getType());
  RankRows rows{int64_t(adaptor.getRows()), int64_t(adaptor.getRanks())};
  if (failed(checkRanks(loc, "all_gather", x, rows.ranks)))
    return failure();
  if (x.getDimSize(0) != rows.most())
    return emitOptionalError(loc, "'all_gather' has ", x.getDimSize(0), " rows of ",
                             rows.rows, " over ", rows.ranks, " ranks, expected ",
                             rows.most());
  results.push_back(withRows(x, rows.rows));
  return success();
}

/// Copies rows between tensors of equal rows.
template <typename T>
static void copyRows(const std::vector<T> &from, int64_t fromRow, std::vector<T> &to,
                     int64_t toRow, int64_t rows, int64_t rowElements) {
  if (from.empty() || to.empty())
    return;
  std::copy_n(from.begin() + fromRow * rowElements, rows * rowElements,
              to.begin() + toRow * rowElements);
}

static void copyRows(const HostTensor &from, int64_t fromRow, HostTensor &to,
                     int64_t toRow, int64_t rows) {
  int64_t rowElements = product(ArrayRef(from.shape).drop_front());
  copyRows(from.reals, fromRow, to.reals, toRow, rows, rowElements);
  copyRows(from.integers, fromRow, to.integers, toRow, rows, rowElements);
}

StringRef ReduceScatterOp::collectiveName() { return getName(); }
StringRef AllGatherOp::collectiveName() { return getName(); }

LogicalResult ReduceScatterOp::evaluate(Evaluation &eval) {
  RankRows rows{eval.operand(0).shape[0], int64_t(getRanks())};
  copyRows(eval.operand(0), 0, eval.result(0), 0, rows.count(0));
  return success();
}

LogicalResult AllGatherOp::evaluate(Evaluation &eval) {
  RankRows rows{int64_t(getRows()), int64_t(getRanks())};
  copyRows(eval.operand(0), 0, eval.result(0), 0, rows.count(0));
  return success();
}

static LogicalResult expectRanks(Operation *op, int64_t ranks, size_t found) {
  if (ranks == int64_t(found))
    return success();
  return op->emitError("'") << op->getName() << "' is for " << ranks << " ranks, "
                            << found << " run it";
}

LogicalResult ReduceScatterOp::evaluateRanks(MutableArrayRef<Evaluation> ranks) {
  if (failed(expectRanks(*this, getRanks(), ranks.size())))
    return failure();
  std::vector<HostTensor> sums;
  for (Evaluation &rank : ranks)
    sums.push_back(rank.operand(0));
  SmallVector<std::vector<double> *> reals;
  SmallVector<std::vector<int64_t> *> integers;
  for (HostTensor &sum : sums) {
    reals.push_back(&sum.reals);
    integers.push_back(&sum.integers);
  }
  addTree<double>(reals, [&](double x) { return ranks.front().round(x); });
  addTree<int64_t>(integers, [](int64_t x) { return x; });
  RankRows rows{sums.front().shape[0], int64_t(getRanks())};
  for (auto [r, rank] : llvm::enumerate(ranks))
    copyRows(sums.front(), rows.begin(r), rank.result(0), 0, rows.count(r));
  return success();
}

LogicalResult AllGatherOp::evaluateRanks(MutableArrayRef<Evaluation> ranks) {
  if (failed(expectRanks(*this, getRanks(), ranks.size())))
    return failure();
  RankRows rows{int64_t(getRows()), int64_t(getRanks())};
  for (Evaluation &to : ranks)
    for (auto [r, from] : llvm::enumerate(ranks))
      copyRows(from.operand(0), 0, to.result(0), rows.begin(r), rows.count(r));
  return success();
}

} // namespace sluice::graph
