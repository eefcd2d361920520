// Reductions along axes.
#include "frontend/onnx/OpTable.h"

#include <cmath>

namespace sluice::frontend {

namespace {

/// The axes of a Reduce operator (attribute, or operand since opset 13 or 18), sorted;
/// the reduced tensor is the operand itself if there are none.
struct Reduction {
  Value x;
  Ints axes;
  bool keep = true, noop = false;
};

std::optional<Reduction> readReduction(Node &n) {
  Reduction r;
  r.x = n.in(0);
  if (!r.x)
    return std::nullopt;
  r.keep = n.i("keepdims", 1);
  Ints given;
  if (n.has(1)) {
    auto axes = n.ints(1);
    if (!axes)
      return std::nullopt;
    given = *axes;
  } else if (auto axes = n.is("axes")) {
    given = *axes;
  }
  if (given.empty()) {
    r.noop = n.i("noop_with_empty_axes", 0);
    r.axes = r.noop ? Ints() : range(rankOf(r.x));
    return r;
  }
  auto axes = n.axes(given, rankOf(r.x));
  if (!axes)
    return std::nullopt;
  r.axes = *axes;
  return r;
}

Value reduced(Node &n, Value x, llvm::StringRef kind, const Reduction &r) {
  return n.e.reduce(x, kind, r.axes, r.keep);
}

template <const char *kind> LogicalResult importPlain(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  if (elementOf(r->x) != n.e.boolType())
    return n.out(reduced(n, r->x, kind, *r));
  Value wide = n.e.cast(r->x, n.e.builder.getI32Type());
  return n.out(n.e.cast(reduced(n, wide, kind, *r), n.e.boolType()));
}
constexpr char sum[] = "sum", maximum[] = "max", minimum[] = "min", product[] = "prod";

LogicalResult importMean(Node &n) {
  auto r = readReduction(n);
  return r ? n.out(n.e.mean(r->x, r->axes, r->keep)) : failure();
}
LogicalResult importL1(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  return n.out(r->noop ? r->x : reduced(n, n.e.un("abs", r->x), "sum", *r));
}
LogicalResult importSumSquare(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  return n.out(r->noop ? r->x : reduced(n, n.e.mul(r->x, r->x), "sum", *r));
}
LogicalResult importL2(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  if (r->noop)
    return n.out(r->x);
  Type type = elementOf(r->x);
  Value x = isFloat(r->x) ? r->x : n.e.cast(r->x, n.e.builder.getF64Type());
  return n.out(n.e.cast(n.e.un("sqrt", reduced(n, n.e.mul(x, x), "sum", *r)), type));
}
LogicalResult importLogSum(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  return n.out(r->noop ? r->x : n.e.un("log", reduced(n, r->x, "sum", *r)));
}
/// max + log(sum(e^(x - max))); an infinite maximum is not subtracted.
LogicalResult importLogSumExp(Node &n) {
  auto r = readReduction(n);
  if (!r)
    return failure();
  if (r->noop)
    return n.out(r->x);
  Emitter &e = n.e;
  Value max = e.reduce(r->x, "max", r->axes, /*keep=*/true);
  Value infinite = e.cmp(e.un("abs", max), INFINITY, "eq");
  Value shift = e.select(infinite, e.like(max, 0), max);
  Value total = e.reduce(e.un("exp", e.sub(r->x, shift)), "sum", r->axes, true);
  Value result = e.add(e.un("log", total), shift);
  if (!result || r->keep)
    return n.out(result);
  Ints shape;
  for (int64_t i = 0; i < rankOf(r->x); ++i)
    if (!llvm::is_contained(r->axes, i))
      shape.push_back(dimOf(r->x, i));
  return n.out(e.reshape(result, shape));
}

template <bool smallest> LogicalResult importArg(Node &n) {
  Value x = n.in(0);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  if (dimOf(x, *axis) == 0)
    return n.fail("no elements along axis " + llvm::Twine(*axis));
  llvm::SmallVector<mlir::NamedAttribute> attributes = {n.e.i64("axis", *axis)};
  if (smallest)
    attributes.push_back(n.e.flag("minimum"));
  if (n.i("select_last_index", 0))
    attributes.push_back(n.e.flag("last"));
  if (n.i("keepdims", 1))
    attributes.push_back(n.e.flag("keep"));
  return n.out(n.e.op("argmax", {x}, attributes));
}

LogicalResult importCumSum(Node &n) {
  Value x = n.in(0);
  auto given = n.ints(1);
  if (!x || !given || given->size() != 1)
    return failure();
  auto axis = n.axis((*given)[0], rankOf(x));
  if (!axis)
    return failure();
  llvm::SmallVector<mlir::NamedAttribute> attributes = {n.e.i64("axis", *axis)};
  if (n.i("exclusive", 0))
    attributes.push_back(n.e.flag("exclusive"));
  if (n.i("reverse", 0))
    attributes.push_back(n.e.flag("reverse"));
  return n.out(n.e.op("cumsum", {x}, attributes));
}

} // namespace

void addReduce(OpTable &table) {
  table["ReduceSum"] = importPlain<sum>;
  table["ReduceMax"] = importPlain<maximum>;
  table["ReduceMin"] = importPlain<minimum>;
  table["ReduceProd"] = importPlain<product>;
  table["ReduceMean"] = importMean;
  table["ReduceL1"] = importL1;
  table["ReduceL2"] = importL2;
  table["ReduceSumSquare"] = importSumSquare;
  table["ReduceLogSum"] = importLogSum;
  table["ReduceLogSumExp"] = importLogSumExp;
  table["ArgMax"] = importArg<false>;
  table["ArgMin"] = importArg<true>;
  table["CumSum"] = importCumSum;
}

} // namespace sluice::frontend
