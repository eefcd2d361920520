// TopK, by ranks or by repeated search.
#include "frontend/onnx/OpTable.h"

#include <limits>

namespace sluice::frontend {

namespace {

struct Top {
  Value values, indices;
};

/// The rank of each element among its n: how many come before it. n * n comparisons, any
/// k.
Top topByRank(Emitter &e, Value x, int64_t k, bool largest) {
  int64_t last = rankOf(x) - 1, n = dimOf(x, last);
  Ints pairs(shapeOf(x));
  pairs.push_back(n); // [..., i, j]
  Value mine = e.broadcast(e.unsqueeze(x, last + 1), pairs);
  Value other = e.broadcast(e.unsqueeze(x, last), pairs);
  Value before = e.cmp(other, mine, largest ? "gt" : "lt");
  Value earlier = e.cmp(e.iota(pairs, last + 1), e.iota(pairs, last), "lt");
  before = e.bin("or", before, e.bin("and", e.cmp(other, mine, "eq"), earlier));
  Value rank = e.reduce(e.cast(before, e.i64Type()), "sum", {last + 1}, false);
  if (!rank)
    return {};
  Value place =
      e.op("scatter_elements", {e.like(rank, 0), rank, e.iota(shapeOf(x), last)},
           {e.i64("axis", last)});
  Value indices = e.sliceAxis(place, last, 0, k);
  return {e.op("gather_elements", {x, indices}, {e.i64("axis", last)}), indices};
}

/// k times the best of what is left.
Top topBySearch(Emitter &e, Value x, int64_t k, bool largest) {
  int64_t last = rankOf(x) - 1;
  double worst = std::numeric_limits<double>::infinity() * (largest ? -1 : 1);
  Value left = x;
  llvm::SmallVector<Value> indices;
  for (int64_t i = 0; i < k; ++i) {
    llvm::SmallVector<mlir::NamedAttribute> attributes = {e.i64("axis", last),
                                                          e.flag("keep")};
    if (!largest)
      attributes.push_back(e.flag("minimum"));
    Value best = e.op("argmax", {left}, attributes);
    if (!best)
      return {};
    indices.push_back(best);
    left = e.op("scatter_elements",
                {left, best, e.splat(shapeOf(best), elementOf(x), worst)},
                {e.i64("axis", last)});
  }
  Value joined = e.concat(indices, last);
  return {e.op("gather_elements", {x, joined}, {e.i64("axis", last)}), joined};
}

LogicalResult importTopK(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t k = n.i("k", 0);
  if (n.version >= 10) {
    auto given = n.ints(1);
    if (!given || given->size() != 1)
      return failure();
    k = (*given)[0];
  }
  auto axis = x ? n.axis(n.i("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  int64_t size = dimOf(x, *axis), last = rankOf(x) - 1;
  if (k < 0 || k > size)
    return n.fail("k is " + llvm::Twine(k) + ", but there are " + llvm::Twine(size));
  bool largest = n.i("largest", 1);
  Value moved = e.swap(x, *axis, last);
  bool bySearch = isFloat(x) && k <= 16 && size > 64 && k > 0;
  if (!bySearch && size > 4096)
    return n.fail("k " + llvm::Twine(k) + " of " + llvm::Twine(size) +
                  " is not supported yet");
  Top top =
      bySearch ? topBySearch(e, moved, k, largest) : topByRank(e, moved, k, largest);
  if (!top.values)
    return failure();
  if (failed(n.out(0, e.swap(top.values, *axis, last))))
    return failure();
  return n.out(1, e.swap(top.indices, *axis, last));
}

} // namespace

void addSort(OpTable &table) { table["TopK"] = importTopK; }

} // namespace sluice::frontend
