#include "ir/graph/GraphBuilder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace sluice::graph {

Value GraphBuilder::splat(RankedTensorType type, double value) {
  Type element = type.getElementType();
  Attribute scalar;
  if (isa<FloatType>(element))
    scalar = getFloatAttr(element, value);
  else
    scalar = getIntegerAttr(element, static_cast<int64_t>(value));
  return make<ConstantOp>(
      cast_or_null<ElementsAttr>(DenseElementsAttr::get(type, scalar)));
}

Value GraphBuilder::cast(Value x, Type elementType) {
  return tensorType(x).getElementType() == elementType ? x : make<CastOp>(x, elementType);
}

Value GraphBuilder::reshape(Value x, Sizes shape) {
  return tensorType(x).getShape() == shape ? x : make<ReshapeOp>(x, shape);
}

Value GraphBuilder::transpose(Value x, Sizes permutation) {
  for (auto [i, dimension] : llvm::enumerate(permutation))
    if (static_cast<int64_t>(i) != dimension)
      return make<TransposeOp>(x, permutation);
  return x;
}

Value GraphBuilder::broadcast(Value x, Sizes shape) {
  return tensorType(x).getShape() == shape ? x : make<BroadcastOp>(x, shape);
}

Value GraphBuilder::reduce(Value x, StringRef kind, Sizes axes, bool keep) {
  return axes.empty() ? x : make<ReduceOp>(x, kind, axes, keep);
}

Value GraphBuilder::sumAll(Value x) {
  return sum(x, llvm::to_vector(llvm::seq<int64_t>(0, tensorType(x).getRank())),
             /*keep=*/false);
}

Value GraphBuilder::spread(Value y, Sizes shape, Sizes axes) {
  SmallVector<int64_t> kept(shape);
  for (int64_t axis : axes)
    kept[axis] = 1;
  return broadcast(reshape(y, kept), shape);
}

Value GraphBuilder::sumTo(Value x, Sizes shape) {
  Sizes from = tensorType(x).getShape();
  const int64_t added = from.size() - shape.size();
  SmallVector<int64_t> axes;
  for (int64_t i = 0, e = from.size(); i < e; ++i)
    if (i < added || shape[i - added] != from[i])
      axes.push_back(i);
  return reshape(sum(x, axes, /*keep=*/false), shape);
}

Value GraphBuilder::broadcastAlong(Value vector, Sizes shape, int64_t axis) {
  SmallVector<int64_t> aligned(shape.size(), 1);
  aligned[axis] = shape[axis];
  return broadcast(reshape(vector, aligned), shape);
}

} // namespace sluice::graph
