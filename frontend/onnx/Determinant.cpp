// Determinants: by formula up to 3x3, by elimination above.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

constexpr int64_t largest = 64; // the elimination is written out step by step

Value byFormula(Emitter &e, Value x, int64_t size) {
  int64_t r = rankOf(x);
  auto at = [&](int64_t i, int64_t j) {
    Value row = e.sliceAxis(x, r - 2, i % size, 1);
    return e.squeeze(e.squeeze(e.sliceAxis(row, r - 1, j % size, 1), r - 1), r - 2);
  };
  if (size == 1)
    return at(0, 0);
  auto minor = [&](int64_t i, int64_t j) { // of rows i, i + 1 and columns j, j + 1
    return e.sub(e.mul(at(i, j), at(i + 1, j + 1)), e.mul(at(i, j + 1), at(i + 1, j)));
  };
  if (size == 2)
    return minor(0, 0);
  Value sum = e.mul(at(0, 0), minor(1, 1));
  sum = e.add(sum, e.mul(at(0, 1), minor(1, 2)));
  return e.add(sum, e.mul(at(0, 2), minor(1, 0)));
}

/// Gauss with partial pivoting on a [B, size, size]: each step multiplies by the pivot
/// and goes on with the Schur complement. The choice of rows has no gradient.
Value byElimination(Emitter &e, Value a, int64_t size) {
  int64_t batch = dimOf(a, 0);
  Value product = e.splat({batch}, elementOf(a), 1);
  for (; size > 1; --size) {
    Value column = e.squeeze(e.sliceAxis(a, 2, 0, 1), 2); // [B, size]
    Value best =
        e.op("argmax", {e.un("abs", column)}, {e.i64("axis", 1), e.flag("keep")});
    if (!best)
      return {};
    Value chosen = e.cmp(e.iota({batch, size}, 1), best, "eq");
    Value mask = e.unsqueeze(e.cast(chosen, elementOf(a)), 1);
    Value row = e.squeeze(e.matmul(mask, a), 1); // the pivot's, [B, size]
    Value pivot = e.squeeze(e.sliceAxis(row, 1, 0, 1), 1);
    // Row 0 takes the pivot row's place, at the price of a sign.
    Value first = e.squeeze(e.sliceAxis(a, 1, 0, 1), 1);
    Value swapped = e.select(e.unsqueeze(chosen, 2), e.unsqueeze(first, 1), a);
    Value sign =
        e.select(e.squeeze(e.cmp(best, 0, "eq"), 1), e.like(pivot, 1), e.like(pivot, -1));
    product = e.mul(product, e.mul(pivot, sign));
    Value divisor = e.select(e.cmp(pivot, 0, "eq"), e.like(pivot, 1), pivot);
    Value rest = e.sliceAxis(e.sliceAxis(swapped, 1, 1, size - 1), 2, 1, size - 1);
    Value under = e.sliceAxis(e.sliceAxis(swapped, 1, 1, size - 1), 2, 0, 1);
    Value right = e.unsqueeze(e.sliceAxis(row, 1, 1, size - 1), 1);
    Value ratio = e.div(right, e.unsqueeze(e.unsqueeze(divisor, 1), 1));
    a = e.sub(rest, e.mul(under, ratio));
    if (!a)
      return {};
  }
  return e.mul(product, e.reshape(a, {batch}));
}

LogicalResult importDet(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) < 2)
    return n.fail("the operand needs a rank of 2 or more");
  int64_t r = rankOf(x), size = dimOf(x, r - 1);
  if (dimOf(x, r - 2) != size || size < 1)
    return n.fail("the operand holds no square matrices");
  if (size > largest)
    return n.fail("matrices of " + llvm::Twine(size) +
                  " rows are not supported yet, at "
                  "most " +
                  llvm::Twine(largest));
  if (size <= 3)
    return n.out(byFormula(e, x, size));
  Ints batch(shapeOf(x).drop_back(2));
  Value y = byElimination(e, e.reshape(x, {elementCount(batch), size, size}), size);
  return n.out(y ? e.reshape(y, batch) : y);
}

} // namespace

void addDeterminant(OpTable &table) { table["Det"] = importDet; }

} // namespace sluice::frontend
