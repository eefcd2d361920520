// Reading and writing at indices.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// Indices in [-size, size) as positions from the front.
Value fromFront(Emitter &e, Value indices, int64_t size) {
  return e.select(e.cmp(indices, 0, "lt"), e.add(indices, double(size)), indices);
}

LogicalResult importGather(Node &n) {
  Value x = n.in(0), indices = n.in(1);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  return axis && indices ? n.out(n.e.gather(x, indices, *axis)) : failure();
}
LogicalResult importGatherElements(Node &n) {
  Value x = n.in(0), indices = n.in(1);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis || !indices)
    return failure();
  if (rankOf(indices) != rankOf(x))
    return n.fail("operands have different ranks");
  for (int64_t i = 0; i < rankOf(x);
       ++i) // only the leading part of other dimensions is read
    if (i != *axis && dimOf(indices, i) < dimOf(x, i))
      x = n.e.sliceAxis(x, i, 0, dimOf(indices, i));
  return n.out(n.e.op("gather_elements", {x, indices}, {n.e.i64("axis", *axis)}));
}

/// Index tuples (last dimension, over `dims`) as positions in the row-major order of
/// `dims`.
Value flatIndex(Emitter &e, Value tuples, llvm::ArrayRef<int64_t> dims) {
  int64_t last = rankOf(tuples) - 1;
  Value flat;
  for (auto [j, dim] : llvm::enumerate(dims)) {
    Value part = fromFront(e, e.squeeze(e.sliceAxis(tuples, last, j, 1), last), dim);
    flat = flat ? e.add(e.mul(flat, double(dim)), part) : part;
  }
  if (!flat) { // empty tuples: the whole tensor each time
    Ints shape(shapeOf(tuples).drop_back());
    flat = e.splat(shape, elementOf(tuples), 0);
  }
  return flat;
}

LogicalResult importGatherND(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), indices = n.in(1);
  if (!x || !indices)
    return failure();
  int64_t batch = n.i("batch_dims", 0), rank = rankOf(x), q = rankOf(indices);
  if (q < 1 || batch < 0 || batch >= q || batch > rank ||
      dimOf(indices, q - 1) > rank - batch ||
      shapeOf(x).take_front(batch) != shapeOf(indices).take_front(batch))
    return n.fail("indices of shape " + shapeText(shapeOf(indices)) + " do not fit " +
                  shapeText(shapeOf(x)));
  int64_t depth = dimOf(indices, q - 1);
  auto shape = shapeOf(x);
  auto dims = shape.slice(batch, depth), rest = shape.drop_front(batch + depth);
  int64_t batches = elementCount(shape.take_front(batch)), rows = elementCount(dims);
  Ints tupleShape(shapeOf(indices).drop_back());
  Value flat = flatIndex(e, indices, dims);
  if (batch > 0) { // offset of the batch element
    int64_t inner = elementCount(llvm::ArrayRef<int64_t>(tupleShape).drop_front(batch));
    flat = e.cast(e.reshape(flat, {batches, inner}), e.i64Type());
    flat = e.add(flat, e.mul(e.iota({batches, inner}, 0), double(rows)));
    flat = e.reshape(flat, tupleShape);
  }
  Ints table = {batches * rows};
  table.append(rest.begin(), rest.end());
  return n.out(e.gather(e.reshape(x, table), flat, 0));
}

Value scatter(Node &n, Value x, Value indices, Value updates, int64_t axis) {
  std::string reduction = n.s("reduction", "none");
  llvm::SmallVector<mlir::NamedAttribute> attributes = {n.e.i64("axis", axis)};
  attributes.push_back(n.e.str("reduction", reduction));
  if (x && updates && elementOf(x) != elementOf(updates))
    return n.e.fail("operands differ in type");
  return n.e.op("scatter_elements", {x, indices, updates}, attributes);
}
LogicalResult importScatterElements(Node &n) {
  Value x = n.in(0), indices = n.in(1), updates = n.in(2);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis || !indices || !updates)
    return failure();
  if (rankOf(indices) != rankOf(x) || shapeOf(indices) != shapeOf(updates))
    return n.fail("operands have shapes that do not fit");
  return n.out(scatter(n, x, indices, updates, *axis));
}

/// Rows of a matrix chosen by flattened index tuples.
LogicalResult importScatterND(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), indices = n.in(1), updates = n.in(2);
  if (!x || !indices || !updates)
    return failure();
  int64_t q = rankOf(indices), depth = q > 0 ? dimOf(indices, q - 1) : -1;
  if (depth < 0 || depth > rankOf(x))
    return n.fail("indices of shape " + shapeText(shapeOf(indices)) + " do not fit " +
                  shapeText(shapeOf(x)));
  auto dims = shapeOf(x).take_front(depth);
  int64_t rows = elementCount(dims), row = elementCount(shapeOf(x).drop_front(depth));
  int64_t count = elementCount(shapeOf(indices).drop_back());
  Ints shape(shapeOf(x));
  Value flat = e.reshape(flatIndex(e, indices, dims), {count, 1});
  Value y = scatter(n, e.reshape(x, {rows, row}), e.broadcast(flat, {count, row}),
                    e.reshape(updates, {count, row}), 0);
  return n.out(e.reshape(y, shape));
}

} // namespace

void addGather(OpTable &table) {
  table["Gather"] = importGather;
  table["GatherElements"] = importGatherElements;
  table["GatherND"] = importGatherND;
  table["Scatter"] = importScatterElements;
  table["ScatterElements"] = importScatterElements;
  table["ScatterND"] = importScatterND;
}

} // namespace sluice::frontend
