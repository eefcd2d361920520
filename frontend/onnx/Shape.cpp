// Operators that give elements another shape or order.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// -1 is what remains, 0 (unless allowzero) the operand's own dimension.
std::optional<Ints> resolve(Node &n, Value x, Ints shape) {
  bool allowZero = n.i("allowzero", 0);
  // A shape written for a batch of 1, where the operand's batch is now larger.
  bool rebatched = n.importer.rebatch > 1 && rankOf(x) > 0 && !shape.empty() &&
                   shape[0] == 1 && dimOf(x, 0) == n.importer.rebatch;
  if (rebatched)
    shape[0] = n.importer.rebatch;
  int64_t free = -1, known = 1;
  for (auto [i, dim] : llvm::enumerate(shape)) {
    if (dim == 0 && !allowZero && static_cast<int64_t>(i) < rankOf(x))
      dim = dimOf(x, i);
    if (dim == -1 && free < 0)
      free = i;
    else if (dim < 0 || __builtin_mul_overflow(known, dim, &known)) {
      n.e.fail("the shape " + shapeText(shape) + " is not valid");
      return std::nullopt;
    }
  }
  int64_t count = elementCount(shapeOf(x));
  if (free >= 0)
    shape[free] = known == 0 ? 0 : count / known;
  return shape;
}

LogicalResult importReshape(Node &n) {
  Value x = n.in(0);
  auto shape = n.version < 5 ? n.is("shape") : n.ints(1);
  if (!x || !shape)
    return failure();
  auto resolved = resolve(n, x, *shape);
  return resolved ? n.out(n.e.reshape(x, *resolved)) : failure();
}

LogicalResult importFlatten(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  int64_t axis = n.i("axis", 1), rank = rankOf(x);
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis > rank)
    return n.fail("axis " + llvm::Twine(axis) + " is out of range for rank " +
                  llvm::Twine(rank));
  auto shape = shapeOf(x);
  return n.out(n.e.reshape(
      x, {elementCount(shape.take_front(axis)), elementCount(shape.drop_front(axis))}));
}

LogicalResult importTranspose(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Ints reversed = range(rankOf(x));
  std::reverse(reversed.begin(), reversed.end());
  return n.out(n.e.transpose(x, n.is("perm").value_or(reversed)));
}

LogicalResult importSqueeze(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  std::optional<Ints> given = n.is("axes");
  if (n.has(1) && !(given = n.ints(1)))
    return failure();
  Ints shape;
  auto axes = given ? n.axes(*given, rankOf(x)) : Ints();
  if (!axes)
    return failure();
  for (auto [i, dim] : llvm::enumerate(shapeOf(x))) {
    bool drop = given ? llvm::is_contained(*axes, static_cast<int64_t>(i)) : dim == 1;
    if (drop && dim != 1)
      return n.fail("dimension " + llvm::Twine(i) + " of " + shapeText(shapeOf(x)) +
                    " is not 1");
    if (!drop)
      shape.push_back(dim);
  }
  return n.out(n.e.reshape(x, shape));
}
LogicalResult importUnsqueeze(Node &n) {
  Value x = n.in(0);
  auto given = n.has(1) ? n.ints(1) : n.is("axes");
  if (!x || !given)
    return failure();
  auto axes = n.axes(*given, rankOf(x) + given->size());
  if (!axes)
    return failure();
  Ints shape(shapeOf(x));
  for (int64_t axis : *axes) // sorted: each lands where it ends up
    shape.insert(shape.begin() + axis, 1);
  return n.out(n.e.reshape(x, shape));
}

LogicalResult importExpand(Node &n) {
  Value x = n.in(0);
  auto shape = n.ints(1);
  if (!x || !shape)
    return failure();
  auto common = broadcastShape(shapeOf(x), *shape);
  if (!common)
    return n.fail("cannot expand " + shapeText(shapeOf(x)) + " to " + shapeText(*shape));
  return n.out(n.e.broadcast(x, *common));
}

/// Repeated dimensions get a new one before them, are broadcast and merged.
Value tile(Emitter &e, Value x, llvm::ArrayRef<int64_t> repeats) {
  Ints split, wide, merged;
  for (auto [dim, times] : llvm::zip_equal(shapeOf(x), repeats)) {
    if (times < 0 || elementCount({dim, times}) > (int64_t(1) << 40))
      return e.fail("the repeats are not valid");
    if (times != 1)
      split.push_back(1), wide.push_back(times);
    split.push_back(dim);
    wide.push_back(dim);
    merged.push_back(dim * times);
  }
  return e.reshape(e.broadcast(e.reshape(x, split), wide), merged);
}
LogicalResult importTile(Node &n) {
  Value x = n.in(0);
  auto repeats = n.ints(1);
  if (!x || !repeats)
    return failure();
  if (n.version < 6 && n.has(2)) { // one axis
    auto axes = n.ints(2);
    auto axis = axes && axes->size() == 1 ? n.axis((*axes)[0], rankOf(x)) : std::nullopt;
    if (!axis || repeats->size() != 1)
      return failure();
    Ints all(rankOf(x), 1);
    all[*axis] = (*repeats)[0];
    repeats = all;
  }
  if (static_cast<int64_t>(repeats->size()) != rankOf(x))
    return n.fail("expected one repeat per dimension");
  return n.out(tile(n.e, x, *repeats));
}

LogicalResult importConcat(Node &n) {
  llvm::SmallVector<Value> parts;
  for (int i = 0; i < n.inputs(); ++i)
    parts.push_back(n.in(i));
  if (parts.empty() || !parts[0])
    return failure();
  auto axis = n.axis(n.i("axis", 1), rankOf(parts[0]));
  return axis ? n.out(n.e.concat(parts, *axis)) : failure();
}

LogicalResult importIdentity(Node &n) { return n.out(n.in(0)); }

/// [N, C, H, W] with C = blocks * D; DCR: the blocks come first.
LogicalResult importDepthToSpace(Node &n) {
  Value x = n.in(0);
  int64_t b = n.i("blocksize", 0);
  if (!x || rankOf(x) != 4 || b < 1 || b > 1 << 15 || dimOf(x, 1) % (b * b) != 0)
    return n.fail("blocksize does not fit the operand");
  int64_t N = dimOf(x, 0), D = dimOf(x, 1) / (b * b), H = dimOf(x, 2), W = dimOf(x, 3);
  bool crd = n.s("mode", "DCR") == "CRD";
  Value split = n.e.reshape(x, crd ? Ints{N, D, b, b, H, W} : Ints{N, b, b, D, H, W});
  Value moved =
      n.e.transpose(split, crd ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  return n.out(n.e.reshape(moved, {N, D, H * b, W * b}));
}
LogicalResult importSpaceToDepth(Node &n) {
  Value x = n.in(0);
  int64_t b = n.i("blocksize", 0);
  if (!x || rankOf(x) != 4 || b < 1 || b > 1 << 15 || dimOf(x, 2) % b || dimOf(x, 3) % b)
    return n.fail("blocksize does not fit the operand");
  int64_t N = dimOf(x, 0), C = dimOf(x, 1), H = dimOf(x, 2) / b, W = dimOf(x, 3) / b;
  Value moved = n.e.transpose(n.e.reshape(x, {N, C, H, b, W, b}), {0, 3, 5, 1, 2, 4});
  return n.out(n.e.reshape(moved, {N, C * b * b, H, W}));
}

} // namespace

void addShape(OpTable &table) {
  table["Reshape"] = importReshape;
  table["Flatten"] = importFlatten;
  table["Transpose"] = importTranspose;
  table["Squeeze"] = importSqueeze;
  table["Unsqueeze"] = importUnsqueeze;
  table["Expand"] = importExpand;
  table["Tile"] = importTile;
  table["Concat"] = importConcat;
  table["Identity"] = importIdentity;
  table["DepthToSpace"] = importDepthToSpace;
  table["SpaceToDepth"] = importSpaceToDepth;
}

} // namespace sluice::frontend
