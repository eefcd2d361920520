#include "frontend/ProveBatch.h"
#include "ir/graph/Graph.h"

#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

namespace sluice::frontend {

using namespace mlir;
using llvm::ArrayRef;

namespace {

constexpr int64_t none = -1;    // does not depend on the samples
constexpr int64_t mixed = -2;   // samples meet
constexpr int64_t summary = -3; // they meet in one number, as in a loss

/// The dimension that counts samples, per value; its size may be a multiple of the batch
/// (rows of one sample lie together).
class BatchAxes {
public:
  explicit BatchAxes(int64_t batch) : batch(batch) {}

  int64_t of(Value value) const {
    auto found = axes.find(value);
    return found == axes.end() ? none : found->second;
  }
  void set(Value value, int64_t axis) { axes[value] = axis; }

  /// The dimension of the results, by what the operation does.
  int64_t follow(Operation *op);

private:
  /// One dimension for all operands that have one.
  int64_t common(ValueRange operands) const {
    int64_t axis = none;
    for (Value operand : operands) {
      int64_t own = of(operand);
      if (own != none && axis != none && own != axis)
        return mixed;
      axis = own == none ? axis : own;
    }
    return axis;
  }
  int64_t unless(bool meet, int64_t axis) const { return meet ? mixed : axis; }

  int64_t reshape(graph::ReshapeOp op) const;
  int64_t reduce(int64_t axis, ArrayRef<int64_t> axes, bool keep) const;
  int64_t contract(graph::ContractOp op) const;
  int64_t gather(graph::GatherOp op) const;
  int64_t scatterAdd(graph::ScatterAddOp op) const;

  int64_t batch;
  DenseMap<Value, int64_t> axes;
};

int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}

int64_t BatchAxes::reshape(graph::ReshapeOp op) const {
  int64_t axis = of(op.getX());
  if (axis < 0)
    return axis;
  ArrayRef<int64_t> from = graph::tensorType(op.getX()).getShape();
  ArrayRef<int64_t> to = graph::tensorType(op.getY()).getShape();
  int64_t before = product(from.take_front(axis));
  for (size_t i = 0; i < to.size(); ++i)
    if (product(to.take_front(i)) == before && to[i] % batch == 0)
      return int64_t(i);
  return mixed;
}

int64_t BatchAxes::reduce(int64_t axis, ArrayRef<int64_t> axes, bool keep) const {
  if (axis < 0 || llvm::is_contained(axes, axis))
    return axis < 0 ? axis : mixed;
  return keep ? axis : axis - llvm::count_if(axes, [&](int64_t a) { return a < axis; });
}

/// Result: batch dimensions, then the free ones of each side.
int64_t BatchAxes::contract(graph::ContractOp op) const {
  auto place = [&](Value operand, ArrayRef<int64_t> batchAxes, ArrayRef<int64_t> summed,
                   int64_t before) -> int64_t {
    int64_t axis = of(operand);
    if (axis < 0 || llvm::is_contained(summed, axis))
      return axis < 0 ? axis : mixed;
    auto at = llvm::find(batchAxes, axis);
    if (at != batchAxes.end())
      return at - batchAxes.begin();
    int64_t free = before;
    for (int64_t i = 0; i < axis; ++i)
      free += !llvm::is_contained(batchAxes, i) && !llvm::is_contained(summed, i);
    return free;
  };
  int64_t shared = op.getLhsBatch().size();
  int64_t lhsRank = graph::tensorType(op.getLhs()).getRank();
  int64_t lhsFree = lhsRank - shared - int64_t(op.getLhsContract().size());
  int64_t lhs = place(op.getLhs(), op.getLhsBatch(), op.getLhsContract(), shared);
  int64_t rhs =
      place(op.getRhs(), op.getRhsBatch(), op.getRhsContract(), shared + lhsFree);
  if (lhs == none || rhs == none)
    return std::max(lhs, rhs) == none ? std::min(lhs, rhs) : std::max(lhs, rhs);
  return lhs == rhs ? lhs : mixed;
}

int64_t BatchAxes::gather(graph::GatherOp op) const {
  int64_t x = of(op.getX()), indices = of(op.getIndices()), at = op.getAxis();
  if (x == none)
    return indices == none ? none : at + indices;
  if (indices != none || x == at)
    return mixed;
  return x < at ? x : x - 1 + graph::tensorType(op.getIndices()).getRank();
}

int64_t BatchAxes::scatterAdd(graph::ScatterAddOp op) const {
  int64_t axis = of(op.getUpdates()), at = op.getAxis();
  int64_t rank = graph::tensorType(op.getIndices()).getRank();
  if (of(op.getIndices()) != none || (axis >= at && axis < at + rank))
    return mixed;
  return axis < at ? axis : axis - rank + 1;
}

int64_t BatchAxes::follow(Operation *op) {
  int64_t axis = common(op->getOperands());
  auto reduced = [&](int64_t along) { return unless(axis == along, axis); };
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([&](graph::Elementwise) { return axis; })
      .Case([&](graph::DropoutOp) { return axis; })
      .Case([&](graph::ReshapeOp o) { return reshape(o); })
      .Case([&](graph::BroadcastOp o) {
        return axis + graph::tensorType(o.getY()).getRank() -
               graph::tensorType(o.getX()).getRank();
      })
      .Case([&](graph::TransposeOp o) {
        return llvm::find(o.getPermutation(), axis) - o.getPermutation().begin();
      })
      .Case([&](graph::SliceOp o) {
        int64_t size = graph::tensorType(o.getX()).getDimSize(axis);
        return unless(o.getSizes()[axis] != size || o.getSteps()[axis] != 1, axis);
      })
      .Case([&](graph::PadOp o) {
        return unless(o.getLow()[axis] != 0 || o.getHigh()[axis] != 0, axis);
      })
      .Case([&](graph::ConcatOp o) { return reduced(o.getAxis()); })
      .Case([&](graph::ReduceOp o) { return reduce(axis, o.getAxes(), o.getKeep()); })
      .Case([&](graph::ArgMaxOp o) {
        return reduce(axis, {int64_t(o.getAxis())}, o.getKeep());
      })
      .Case([&](graph::CumSumOp o) { return reduced(o.getAxis()); })
      .Case([&](graph::SoftmaxOp o) { return reduced(o.getAxis()); })
      .Case([&](graph::LogSoftmaxOp o) { return reduced(o.getAxis()); })
      .Case<graph::LayerNormOp, graph::RmsNormOp>([&](auto o) {
        return unless(axis >= int64_t(o.getAxis()) || of(o.getX()) != axis, axis);
      })
      .Case<graph::BatchNormOp, graph::BatchNormTrainOp, graph::ConvOp,
            graph::ConvInputGradOp, graph::MaxPoolOp, graph::AvgPoolOp>(
          [&](auto) { return unless(axis != 0 || of(op->getOperand(0)) != 0, axis); })
      .Case([&](graph::ContractOp o) { return contract(o); })
      .Case([&](graph::GatherOp o) { return gather(o); })
      .Case([&](graph::GatherElementsOp o) { return reduced(o.getAxis()); })
      .Case([&](graph::ScatterElementsOp o) { return reduced(o.getAxis()); })
      .Case([&](graph::ScatterAddOp o) { return scatterAdd(o); })
      .Default([&](Operation *) { return mixed; });
}

std::string describe(Operation *op) {
  auto loc = dyn_cast<NameLoc>(op->getLoc());
  std::string node = loc ? loc.getName().str() : "";
  return "node '" + node + "' (" + op->getName().stripDialect().str() + ")";
}

} // namespace

std::optional<std::string> findMixing(func::FuncOp function, ArrayRef<bool> batched,
                                      int64_t batch) {
  BatchAxes axes(batch);
  for (auto [argument, hasBatch] : llvm::zip(function.getArguments(), batched))
    if (hasBatch)
      axes.set(argument, 0);
  for (Operation &op : function.getBody().front()) {
    auto holds = [&](auto wanted) {
      return llvm::any_of(op.getOperands(), [&](Value v) { return wanted(axes.of(v)); });
    };
    bool samples = holds([](int64_t axis) { return axis >= 0; });
    bool summaries = holds([](int64_t axis) { return axis == summary; });
    if ((!samples && !summaries) || isa<func::ReturnOp>(op))
      continue;
    int64_t axis = summaries ? samples ? mixed : summary : axes.follow(&op);
    if (axis == mixed && !summaries && isa<graph::ReduceOp>(op) &&
        graph::tensorType(op.getResult(0)).getNumElements() == 1)
      axis = summary;
    if (axis == mixed)
      return describe(&op);
    // Statistics of a training batch belong to no sample.
    bool statistics = isa<graph::BatchNormTrainOp>(op);
    for (auto [i, result] : llvm::enumerate(op.getResults()))
      if (!statistics || i == 0)
        axes.set(result, axis);
  }
  return std::nullopt;
}

} // namespace sluice::frontend
