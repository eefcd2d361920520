// The part of the emitter that moves elements, reduces and multiplies.
#include "frontend/onnx/Emitter.h"

namespace sluice::frontend {

using namespace mlir;

Value Emitter::reshape(Value x, ArrayRef<int64_t> shape) {
  if (!x || shapeOf(x) == shape)
    return x;
  if (elementCount(shapeOf(x)) != elementCount(shape))
    return fail("cannot reshape " + shapeText(shapeOf(x)) + " to " + shapeText(shape));
  return op("reshape", {x}, {i64s("shape", shape)});
}
Value Emitter::transpose(Value x, ArrayRef<int64_t> permutation) {
  if (!x)
    return x;
  Ints sorted(permutation);
  llvm::sort(sorted);
  if (ArrayRef<int64_t>(sorted) != ArrayRef<int64_t>(range(rankOf(x))))
    return fail("no permutation of the dimensions of " + shapeText(shapeOf(x)));
  if (llvm::is_sorted(permutation))
    return x;
  return op("transpose", {x}, {i64s("permutation", permutation)});
}
Value Emitter::swap(Value x, int64_t a, int64_t b) {
  if (!x)
    return x;
  Ints permutation = range(rankOf(x));
  std::swap(permutation[a], permutation[b]);
  return transpose(x, permutation);
}
Value Emitter::broadcast(Value x, ArrayRef<int64_t> shape) {
  if (!x || shapeOf(x) == shape)
    return x;
  auto common = broadcastShape(shapeOf(x), shape);
  if (!common || ArrayRef<int64_t>(*common) != shape)
    return fail("cannot broadcast " + shapeText(shapeOf(x)) + " to " + shapeText(shape));
  return op("broadcast", {x}, {i64s("shape", shape)});
}
Value Emitter::along(Value vector, ArrayRef<int64_t> shape, int64_t axis) {
  if (!vector)
    return vector;
  if (elementCount(shapeOf(vector)) != shape[axis])
    return fail("expected " + Twine(shape[axis]) + " elements, found " +
                shapeText(shapeOf(vector)));
  Ints aligned(shape.size(), 1);
  aligned[axis] = shape[axis];
  return broadcast(reshape(vector, aligned), shape);
}
Value Emitter::slice(Value x, ArrayRef<int64_t> starts, ArrayRef<int64_t> sizes,
                     ArrayRef<int64_t> steps) {
  if (!x)
    return x;
  bool whole = true;
  for (int64_t i = 0; i < rankOf(x); ++i) {
    int64_t last = starts[i] + (sizes[i] - 1) * steps[i];
    if (sizes[i] < 0 || (sizes[i] > 0 && (starts[i] < 0 || starts[i] >= dimOf(x, i) ||
                                          last < 0 || last >= dimOf(x, i))))
      return fail("slice leaves dimension " + Twine(i) + " of " + shapeText(shapeOf(x)));
    whole &=
        starts[i] == 0 && sizes[i] == dimOf(x, i) && (steps[i] == 1 || sizes[i] <= 1);
  }
  if (whole)
    return x;
  // An empty slice starts nowhere: keep the attributes in range.
  Ints from(starts), by(steps);
  for (int64_t i = 0; i < rankOf(x); ++i)
    if (sizes[i] == 0)
      from[i] = 0, by[i] = 1;
  return op("slice", {x},
            {i64s("starts", from), i64s("sizes", sizes), i64s("steps", by)});
}
Value Emitter::sliceAxis(Value x, int64_t axis, int64_t start, int64_t size,
                         int64_t step) {
  if (!x)
    return x;
  Ints starts(rankOf(x), 0), sizes(shapeOf(x)), steps(rankOf(x), 1);
  starts[axis] = start, sizes[axis] = size, steps[axis] = step;
  return slice(x, starts, sizes, steps);
}
Value Emitter::pad(Value x, ArrayRef<int64_t> low, ArrayRef<int64_t> high, double value) {
  if (!x)
    return x;
  auto zero = [](int64_t n) { return n == 0; };
  if (llvm::all_of(low, zero) && llvm::all_of(high, zero))
    return x;
  return op("pad", {x}, {i64s("low", low), i64s("high", high), f64("value", value)});
}
Value Emitter::concat(ValueRange parts, int64_t axis) {
  if (parts.size() == 1)
    return parts[0];
  for (Value part : parts) {
    if (!part)
      return {};
    if (elementOf(part) != elementOf(parts[0]) || rankOf(part) != rankOf(parts[0]))
      return fail("the tensors to join differ in type or rank");
    for (int64_t i = 0; i < rankOf(part); ++i)
      if (i != axis && dimOf(part, i) != dimOf(parts[0], i))
        return fail("cannot join " + shapeText(shapeOf(parts[0])) + " and " +
                    shapeText(shapeOf(part)) + " along dimension " + Twine(axis));
  }
  return parts.empty() ? fail("nothing to join")
                       : op("concat", parts, {i64("axis", axis)});
}
Value Emitter::squeeze(Value x, int64_t axis) {
  if (!x)
    return x;
  Ints shape(shapeOf(x));
  shape.erase(shape.begin() + axis);
  return reshape(x, shape);
}
Value Emitter::unsqueeze(Value x, int64_t axis) {
  if (!x)
    return x;
  Ints shape(shapeOf(x));
  shape.insert(shape.begin() + axis, 1);
  return reshape(x, shape);
}

Value Emitter::reduce(Value x, StringRef kind, ArrayRef<int64_t> axes, bool keep) {
  if (!x || axes.empty())
    return x;
  SmallVector<NamedAttribute> attributes = {str("kind", kind), i64s("axes", axes)};
  if (keep)
    attributes.push_back(flag("keep"));
  return op("reduce", {x}, attributes);
}
Value Emitter::mean(Value x, ArrayRef<int64_t> axes, bool keep) {
  if (!x)
    return x;
  double count = 1;
  for (int64_t axis : axes)
    count *= dimOf(x, axis);
  Value sum = reduce(x, "sum", axes, keep);
  return sum ? div(sum, like(sum, count)) : sum;
}
Value Emitter::contract(Value a, Value b, ArrayRef<int64_t> aBatch,
                        ArrayRef<int64_t> bBatch, ArrayRef<int64_t> aSum,
                        ArrayRef<int64_t> bSum) {
  if (!a || !b)
    return {};
  if (elementOf(a) != elementOf(b))
    return fail("operands are of types " + typeText(elementOf(a)) + " and " +
                typeText(elementOf(b)));
  for (auto [i, j] : llvm::zip_equal(aSum, bSum))
    if (dimOf(a, i) != dimOf(b, j))
      return fail("operand 1 has " + Twine(dimOf(b, j)) + " rows, expected " +
                  Twine(dimOf(a, i)) + " (shapes " + shapeText(shapeOf(a)) + " and " +
                  shapeText(shapeOf(b)) + ")");
  for (auto [i, j] : llvm::zip_equal(aBatch, bBatch))
    if (dimOf(a, i) != dimOf(b, j))
      return fail("batch dimensions of " + shapeText(shapeOf(a)) + " and " +
                  shapeText(shapeOf(b)) + " differ");
  SmallVector<NamedAttribute> attributes = {
      i64s("lhs_batch", aBatch), i64s("rhs_batch", bBatch), i64s("lhs_contract", aSum),
      i64s("rhs_contract", bSum)};
  roundTo16(a, attributes);
  return op("contract", {a, b}, attributes);
}
Value Emitter::matmul(Value a, Value b) {
  if (!a || !b)
    return {};
  int64_t ra = rankOf(a), rb = rankOf(b);
  if (ra == 0 || rb == 0)
    return fail("a matrix product needs operands of rank 1 or more");
  if (rb <= 2) // the rows of a, however many dimensions they have
    return contract(a, b, {}, {}, {ra - 1}, {0});
  if (ra == 1)
    return squeeze(matmul(unsqueeze(a, 0), b), rb - 2);
  auto batch = broadcastShape(shapeOf(a).drop_back(2), shapeOf(b).drop_back(2));
  if (!batch)
    return fail("batch dimensions of " + shapeText(shapeOf(a)) + " and " +
                shapeText(shapeOf(b)) + " do not broadcast");
  Ints sa(*batch), sb(*batch);
  sa.append(shapeOf(a).end() - 2, shapeOf(a).end());
  sb.append(shapeOf(b).end() - 2, shapeOf(b).end());
  Ints dims = range(batch->size());
  int64_t n = batch->size();
  return contract(broadcast(a, sa), broadcast(b, sb), dims, dims, {n + 1}, {n});
}
Value Emitter::gather(Value x, Value indices, int64_t axis) {
  return op("gather", {x, indices}, {i64("axis", axis)});
}

} // namespace sluice::frontend
