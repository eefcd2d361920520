#include "passes/RowBlocks.h"

#include "ir/graph/GraphBuilder.h"

using namespace mlir;

namespace sluice {

using graph::tensorType;

int64_t rowDims(Value value, int64_t rows) {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  int64_t product = 1;
  for (auto [i, size] : llvm::enumerate(shape))
    if ((product *= size) >= rows)
      return product == rows ? i + 1 : -1;
  return -1;
}

int64_t widthOf(Value value, int64_t rows) {
  return rowDims(value, rows) < 0 ? -1 : tensorType(value).getNumElements() / rows;
}

/// A broadcast repeats its operand for each row.
static bool repeatsForRows(Operation *broadcast, int64_t rows) {
  ArrayRef<int64_t> from = tensorType(broadcast->getOperand(0)).getShape();
  int64_t behind = tensorType(broadcast->getResult(0)).getRank() -
                   rowDims(broadcast->getResult(0), rows);
  int64_t rank = from.size();
  return rank <= behind || (rank == behind + 1 && from[0] == 1);
}

bool isSameForRows(Value value, int64_t rows) {
  while (auto cast = value.getDefiningOp<graph::CastOp>())
    value = cast.getX();
  auto broadcast = value.getDefiningOp<graph::BroadcastOp>();
  return broadcast && rowDims(value, rows) > 0 && repeatsForRows(broadcast, rows);
}

bool mayRunByRows(Operation *op, int64_t rows, ArrayRef<int64_t> widths) {
  if (op->getNumResults() != 1)
    return false;
  Value result = op->getResult(0);
  if (!llvm::is_contained(widths, widthOf(result, rows)))
    return false;
  if (isa<graph::Elementwise>(op))
    return true;
  if (isa<graph::ReshapeOp>(op))
    return widthOf(op->getOperand(0), rows) == widthOf(result, rows);
  if (isa<graph::BroadcastOp>(op))
    return widthOf(op->getOperand(0), rows) == 1 || repeatsForRows(op, rows);
  auto isBehindRows = [&](int64_t axis) {
    return axis >= rowDims(op->getOperand(0), rows);
  };
  if (auto reduce = dyn_cast<graph::ReduceOp>(op))
    return rowDims(reduce.getX(), rows) > 0 &&
           llvm::all_of(reduce.getAxes(), isBehindRows);
  if (isa<graph::SoftmaxOp, graph::LogSoftmaxOp>(op))
    return isBehindRows(op->getAttrOfType<IntegerAttr>("axis").getInt());
  return false;
}

RankedTensorType RowBlock::typeOf(Value value) const {
  auto type = tensorType(value);
  SmallVector<int64_t> shape{count};
  llvm::append_range(shape, type.getShape().drop_front(rowDims(value, rows)));
  return type.clone(shape);
}

/// The matrix of a product, a number, and what is repeated for each row are whole.
Value RowBlock::operandOf(Operation *op, unsigned i) {
  Value operand = op->getOperand(i);
  bool isMatrix = isa<graph::ContractOp>(op) && i == 1;
  return isMatrix || widthOf(operand, rows) < 0 ? operand : of(operand);
}

Operation *RowBlock::clone(Operation *op) {
  Value result = op->getResult(0);
  int64_t moved = 1 - rowDims(op->getOperand(0), rows); // of dimensions behind the rows
  auto type = typeOf(result);
  SmallVector<Value> operands;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    operands.push_back(operandOf(op, i));
  Operation *made = builder.clone(*op);
  made->setOperands(operands);
  made->getResult(0).setType(type);
  if (isa<graph::ReshapeOp, graph::BroadcastOp>(made))
    made->setAttr("shape", builder.getDenseI64ArrayAttr(type.getShape()));
  if (auto reduce = dyn_cast<graph::ReduceOp>(made)) {
    SmallVector<int64_t> axes(reduce.getAxes());
    for (int64_t &axis : axes)
      axis += moved;
    reduce.setAxes(axes);
  }
  if (isa<graph::SoftmaxOp, graph::LogSoftmaxOp>(made)) {
    int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt() + moved;
    made->setAttr("axis", builder.getI64IntegerAttr(axis));
  }
  if (auto contract = dyn_cast<graph::ContractOp>(made))
    contract.setLhsContract({1});
  mapping.map(result, made->getResult(0));
  return made;
}

Value RowBlock::of(Value value) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  graph::GraphBuilder b(value.getLoc(), builder);
  Value made;
  if (auto constant = llvm::dyn_cast_or_null<graph::ConstantOp>(op);
      constant && isa<SplatElementsAttr>(constant.getValue()))
    made = b.make<graph::ConstantOp>(ElementsAttr(
        cast<DenseElementsAttr>(constant.getValue()).resizeSplat(typeOf(value))));
  else if (auto iota = llvm::dyn_cast_or_null<graph::IotaOp>(op);
           iota && int64_t(iota.getAxis()) >= rowDims(value, rows))
    made = b.make<graph::IotaOp>(typeOf(value).getShape(),
                                 int64_t(iota.getAxis()) + 1 - rowDims(value, rows));
  else if (op && widthOf(value, rows) == wide && mayRunByRows(op, rows, {wide}))
    made = clone(op)->getResult(0);
  else
    made = cut(value);
  mapping.map(value, made);
  return made;
}

Value RowBlock::cut(Value value) {
  graph::GraphBuilder b(value.getLoc(), builder);
  SmallVector<int64_t> sizes(typeOf(value).getShape()), all = sizes;
  all[0] = rows;
  SmallVector<int64_t> starts(sizes.size(), 0), steps(sizes.size(), 1);
  starts[0] = first;
  return b.make<graph::SliceOp>(b.reshape(value, all), starts, sizes, steps);
}

} // namespace sluice
