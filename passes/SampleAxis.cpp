#include "passes/SampleAxis.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace sluice {
namespace {

using Axes = DenseMap<Value, SampleAxis>;

int64_t stepOf(ArrayRef<int64_t> shape, int64_t dimension) {
  int64_t step = 1;
  for (int64_t size : shape.drop_front(dimension + 1))
    step *= size;
  return step;
}

/// The dimension that holds the samples, and how many elements of it one sample has.
struct Place {
  int64_t dimension = 0, inner = 1;
};

/// What happens to the samples in one operation.
class Transfer {
public:
  Transfer(Operation *op, const Axes &axes, int64_t batch)
      : op(op), axes(axes), batch(batch) {}

  SampleAxis run() const {
    bool any = false;
    for (Value operand : op->getOperands()) {
      SampleAxis::Kind kind = axes.lookup(operand).kind;
      if (kind == SampleAxis::Mixed || kind == SampleAxis::Unknown)
        return {kind};
      any |= kind == SampleAxis::At;
    }
    return any ? compute() : SampleAxis{};
  }

private:
  SampleAxis compute() const {
    if (isa<graph::Elementwise>(op))
      return elementwise();
    return llvm::TypeSwitch<Operation *, SampleAxis>(op)
        .Case<graph::ReshapeOp>([&](auto reshape) { return axes.lookup(reshape.getX()); })
        .Case<graph::TransposeOp, graph::BroadcastOp, graph::SliceOp, graph::PadOp,
              graph::ReduceOp, graph::ArgMaxOp, graph::CumSumOp>([&](auto one) {
          auto place = placeOf(one.getX());
          return place ? moved(one, *place) : SampleAxis{SampleAxis::Unknown};
        })
        .Case<graph::ConcatOp>(
            [&](graph::ConcatOp concat) { return concatenated(concat); })
        .Case<graph::ContractOp>([&](graph::ContractOp c) { return contracted(c); })
        .Case<graph::AttentionOp>([&](auto attention) { return attended(attention); })
        .Case<graph::ConvOp>([&](auto c) { return windowed(c.getX(), c.getW()); })
        .Case<graph::ConvInputGradOp>(
            [&](auto c) { return windowed(c.getDy(), c.getW()); })
        .Case<graph::MaxPoolOp, graph::AvgPoolOp>(
            [&](auto pool) { return windowed(pool.getX(), Value()); })
        .Case<graph::GatherOp>([&](graph::GatherOp gather) { return gathered(gather); })
        .Case<graph::GatherElementsOp, graph::ScatterElementsOp>(
            [&](auto op) { return elementsAlong(op.getAxis()); })
        .Default([](Operation *) { return SampleAxis{SampleAxis::Unknown}; });
  }

  static ArrayRef<int64_t> shapeOf(Value value) {
    return graph::tensorType(value).getShape();
  }
  ArrayRef<int64_t> resultShape() const { return shapeOf(op->getResult(0)); }
  bool isAt(Value value) const { return axes.lookup(value).kind == SampleAxis::At; }

  /// Nothing where the samples are spread over several dimensions.
  std::optional<Place> placeOf(Value value) const {
    ArrayRef<int64_t> shape = shapeOf(value);
    int64_t stride = axes.lookup(value).stride;
    for (int64_t d = 0; d < int64_t(shape.size()); ++d) {
      int64_t step = stepOf(shape, d);
      if (step > 0 && step <= stride && stride % step == 0 &&
          stride * batch <= step * shape[d] && step * shape[d] % (stride * batch) == 0)
        return Place{d, stride / step};
    }
    return std::nullopt;
  }

  SampleAxis at(int64_t dimension, int64_t inner) const {
    return {SampleAxis::At, inner * stepOf(resultShape(), dimension)};
  }

  /// All operands that have samples have them in the same place.
  SampleAxis elementwise() const {
    SampleAxis result;
    for (Value operand : op->getOperands()) {
      SampleAxis axis = axes.lookup(operand);
      if (result.kind == SampleAxis::At && axis.kind == SampleAxis::At &&
          axis.stride != result.stride)
        return {SampleAxis::Mixed};
      if (axis.kind == SampleAxis::At)
        result = axis;
    }
    return result;
  }

  SampleAxis moved(graph::TransposeOp transpose, Place place) const {
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    return at(llvm::find(permutation, place.dimension) - permutation.begin(),
              place.inner);
  }
  SampleAxis moved(graph::BroadcastOp broadcast, Place place) const {
    int64_t added = resultShape().size() - shapeOf(broadcast.getX()).size();
    // Only a batch of 1 can be repeated: every copy is of that sample.
    return at(place.dimension + added, place.inner);
  }
  SampleAxis moved(graph::SliceOp slice, Place place) const {
    bool isWhole =
        resultShape()[place.dimension] == shapeOf(slice.getX())[place.dimension] &&
        slice.getSteps()[place.dimension] == 1;
    return isWhole ? at(place.dimension, place.inner) : SampleAxis{SampleAxis::Mixed};
  }
  SampleAxis moved(graph::PadOp pad, Place place) const {
    bool isWhole =
        pad.getLow()[place.dimension] == 0 && pad.getHigh()[place.dimension] == 0;
    return isWhole ? at(place.dimension, place.inner) : SampleAxis{SampleAxis::Mixed};
  }
  SampleAxis reduced(Place place, ArrayRef<int64_t> reducedAxes, bool keep) const {
    if (llvm::is_contained(reducedAxes, place.dimension))
      return {SampleAxis::Mixed};
    int64_t before =
        llvm::count_if(reducedAxes, [&](int64_t a) { return a < place.dimension; });
    return at(place.dimension - (keep ? 0 : before), place.inner);
  }
  SampleAxis moved(graph::ReduceOp reduce, Place place) const {
    return reduced(place, reduce.getAxes(), reduce.getKeep());
  }
  SampleAxis moved(graph::ArgMaxOp argmax, Place place) const {
    return reduced(place, {int64_t(argmax.getAxis())}, argmax.getKeep());
  }
  SampleAxis moved(graph::CumSumOp sum, Place place) const {
    return int64_t(sum.getAxis()) == place.dimension ? SampleAxis{SampleAxis::Mixed}
                                                     : at(place.dimension, place.inner);
  }

  SampleAxis concatenated(graph::ConcatOp concat) const {
    std::optional<Place> common;
    for (Value input : concat.getInputs()) {
      if (!isAt(input))
        continue;
      auto place = placeOf(input);
      if (!place)
        return {SampleAxis::Unknown};
      if (place->dimension == int64_t(concat.getAxis()) ||
          (common &&
           (common->dimension != place->dimension || common->inner != place->inner)))
        return {SampleAxis::Mixed};
      common = place;
    }
    return at(common->dimension, common->inner);
  }

  /// Result dimensions: batch, free of lhs, free of rhs.
  SampleAxis contracted(graph::ContractOp contract) const {
    auto side = [&](Value operand, ArrayRef<int64_t> batchDims, ArrayRef<int64_t> summed,
                    int64_t freeBegin) -> SampleAxis {
      auto place = placeOf(operand);
      if (!place)
        return {SampleAxis::Unknown};
      if (llvm::is_contained(summed, place->dimension))
        return {SampleAxis::Mixed};
      const auto *paired = llvm::find(batchDims, place->dimension);
      if (paired != batchDims.end())
        return at(paired - batchDims.begin(), place->inner);
      int64_t position = freeBegin;
      for (int64_t d = 0; d < place->dimension; ++d)
        position += !llvm::is_contained(batchDims, d) && !llvm::is_contained(summed, d);
      return at(position, place->inner);
    };
    int64_t batchCount = contract.getLhsBatch().size();
    int64_t rhsFree =
        resultShape().size() - (shapeOf(contract.getRhs()).size() - batchCount -
                                contract.getRhsContract().size());
    SampleAxis left, right;
    if (isAt(contract.getLhs()))
      left = side(contract.getLhs(), contract.getLhsBatch(), contract.getLhsContract(),
                  batchCount);
    if (isAt(contract.getRhs()))
      right = side(contract.getRhs(), contract.getRhsBatch(), contract.getRhsContract(),
                   rhsFree);
    if (left.kind == SampleAxis::None)
      return right;
    if (right.kind == SampleAxis::None || left.kind != SampleAxis::At)
      return left;
    if (right.kind != SampleAxis::At)
      return right;
    return left.stride == right.stride ? left : SampleAxis{SampleAxis::Mixed};
  }

  /// Queries keep their place; keys, values and masks may have samples in the same
  /// dimension, batch or heads, only.
  SampleAxis attended(graph::AttentionOp attention) const {
    std::optional<Place> common;
    for (Value operand : op->getOperands()) {
      if (!isAt(operand))
        continue;
      auto place = placeOf(operand);
      if (!place)
        return {SampleAxis::Unknown};
      int64_t kept = operand == attention.getQ() ? 2 : 1;
      if (place->dimension > kept || (common && (common->dimension != place->dimension ||
                                                 common->inner != place->inner)))
        return {SampleAxis::Mixed};
      common = place;
    }
    // Groups of query heads share a key head.
    bool groups = shapeOf(attention.getK())[1] != resultShape()[1];
    return common->dimension == 1 && groups ? SampleAxis{SampleAxis::Mixed}
                                            : at(common->dimension, common->inner);
  }

  /// Convolutions and pools keep dimension 0 of x and slide along the last ones.
  SampleAxis windowed(Value x, Value weights) const {
    if (!isAt(x) || (weights && isAt(weights)))
      return {SampleAxis::Mixed};
    auto place = placeOf(x);
    if (!place)
      return {SampleAxis::Unknown};
    bool isKept = place->dimension == 0 || (place->dimension == 1 && !weights);
    return isKept ? at(place->dimension, place->inner) : SampleAxis{SampleAxis::Mixed};
  }

  /// Result: dimensions of x with `axis` replaced by those of the indices.
  SampleAxis gathered(graph::GatherOp gather) const {
    bool ofX = isAt(gather.getX()), ofIndices = isAt(gather.getIndices());
    if (ofX && ofIndices)
      return {SampleAxis::Mixed};
    auto place = placeOf(ofX ? gather.getX() : gather.getIndices());
    if (!place)
      return {SampleAxis::Unknown};
    int64_t axis = gather.getAxis();
    if (ofIndices)
      return at(axis + place->dimension, place->inner);
    if (place->dimension == axis)
      return {SampleAxis::Mixed};
    int64_t added = shapeOf(gather.getIndices()).size() - 1;
    return at(place->dimension + (place->dimension > axis ? added : 0), place->inner);
  }

  /// Elements chosen along `axis`, in the same place in all other dimensions.
  SampleAxis elementsAlong(int64_t axis) const {
    std::optional<Place> common;
    for (Value operand : op->getOperands()) {
      if (!isAt(operand))
        continue;
      auto place = placeOf(operand);
      if (!place)
        return {SampleAxis::Unknown};
      if (place->dimension == axis || (common && (common->dimension != place->dimension ||
                                                  common->inner != place->inner)))
        return {SampleAxis::Mixed};
      common = place;
    }
    return at(common->dimension, common->inner);
  }

  Operation *op;
  const Axes &axes;
  int64_t batch;
};

} // namespace

bool SampleAxis::countsRows(RankedTensorType type, int64_t batch) const {
  // One sample meets no other, and its axis of size 1 can be mistaken for another.
  bool isOne =
      batch == 1 && kind != None && type.getRank() > 0 && type.getDimSize(0) == 1;
  if (kind == Unknown || isOne)
    return type.getRank() > 0 && type.getDimSize(0) == batch;
  return kind == At && type.getRank() > 0 && type.getDimSize(0) % batch == 0 &&
         stride * batch == type.getNumElements();
}

SampleAxes::SampleAxes(func::FuncOp entry, int64_t batch) {
  for (BlockArgument argument : entry.getArguments())
    if (entry.getArgAttr(argument.getArgNumber(), "graph.batched"))
      axes[argument] = {SampleAxis::At,
                        graph::tensorType(argument).getNumElements() / batch};
  for (Operation &op : entry.getBody().front())
    for (OpResult result : op.getResults())
      if (auto axis = Transfer(&op, axes, batch).run(); axis.kind != SampleAxis::None)
        axes[result] = axis;
}

} // namespace sluice
