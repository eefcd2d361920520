// Softmax, LogSoftmax and Hardmax. Up to opset 12 the operand is seen as a matrix:
// dimensions before `axis` (default 1) are rows, the others one long row; from 13 on it
// is one axis.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

Value hardmax(Emitter &e, Value x, int64_t axis) {
  Value best = e.op("argmax", {x}, {e.i64("axis", axis), e.flag("keep")});
  Value hit = x ? e.cmp(e.iota(shapeOf(x), axis), best, "eq") : x;
  return hit ? e.cast(hit, elementOf(x)) : hit;
}

Value apply(Emitter &e, llvm::StringRef name, Value x, int64_t axis) {
  return name == "hardmax" ? hardmax(e, x, axis) : e.op(name, {x}, {e.i64("axis", axis)});
}

template <const char *name> LogicalResult importAlong(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  bool matrix = n.version < 13;
  int64_t rank = rankOf(x);
  auto axis = n.axis(n.i("axis", matrix ? (rank > 1 ? 1 : 0) : -1), rank);
  if (!axis)
    return failure();
  if (!matrix || *axis == rank - 1)
    return n.out(apply(n.e, name, x, *axis));
  auto shape = shapeOf(x);
  Ints flat = {elementCount(shape.take_front(*axis)),
               elementCount(shape.drop_front(*axis))};
  return n.out(n.e.reshape(apply(n.e, name, n.e.reshape(x, flat), 1), shape));
}
constexpr char softmax[] = "softmax", logSoftmax[] = "log_softmax", hard[] = "hardmax";

} // namespace

void addSoftmax(OpTable &table) {
  table["Softmax"] = importAlong<softmax>;
  table["LogSoftmax"] = importAlong<logSoftmax>;
  table["Hardmax"] = importAlong<hard>;
}

} // namespace sluice::frontend
