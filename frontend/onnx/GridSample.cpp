// Operators that read at positions they compute: GridSample, AffineGrid, DeformConv.
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Sampler.h"
#include "frontend/onnx/Window.h"

namespace sluice::frontend {

namespace {

std::optional<Outside> outsideOf(Node &n) {
  std::string padding = n.s("padding_mode", "zeros");
  if (padding == "zeros")
    return Outside::Zeros;
  if (padding == "border")
    return Outside::Border;
  if (padding == "reflection")
    return Outside::Reflection;
  n.e.fail("padding_mode '" + padding + "' is unknown");
  return std::nullopt;
}

LogicalResult importGridSample(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), grid = n.in(1);
  auto outside = outsideOf(n);
  if (!x || !grid || !outside)
    return failure();
  int64_t rank = rankOf(x), axes = rank - 2;
  if (axes < 1 || rankOf(grid) != rank || dimOf(grid, rank - 1) != axes ||
      dimOf(grid, 0) != dimOf(x, 0) || elementCount(shapeOf(x)) == 0)
    return n.fail("a grid of " + shapeText(shapeOf(grid)) + " does not fit an operand " +
                  shapeText(shapeOf(x)) +
                  ", expected [N, ..., spatial dimensions of the operand]");
  std::string mode = n.s("mode", n.version < 20 ? "bilinear" : "linear");
  bool align = n.i("align_corners", 0);
  Ints out = {dimOf(x, 0), dimOf(x, 1)};
  auto wanted = shapeOf(grid).slice(1, axes);
  out.append(wanted.begin(), wanted.end());
  llvm::SmallVector<Value> at;
  for (int64_t i = 0; i < axes; ++i) { // the last coordinate is of the first axis
    double size = double(dimOf(x, 2 + i));
    Value g = e.reshape(e.sliceAxis(grid, rank - 1, axes - 1 - i, 1),
                        {out[0], elementCount(wanted)});
    g = e.add(g, 1);
    at.push_back(align ? e.mul(g, (size - 1) / 2) : e.add(e.mul(g, size / 2), -0.5));
  }
  Sampler sampler(e, x, *outside, align);
  Value y;
  if (mode == "nearest")
    y = sampler.nearest(at);
  else if (mode == "bilinear" || mode == "linear")
    y = sampler.linear(at);
  else if ((mode == "bicubic" || mode == "cubic") && axes == 2)
    y = sampler.cubic(at);
  else
    return n.fail("mode '" + mode + "' is unknown for " + llvm::Twine(axes) +
                  " spatial dimensions");
  return n.out(e.reshape(y, out));
}

/// The positions of an image, in [-1, 1], moved by theta: [N, H, W, 2] or with D.
LogicalResult importAffineGrid(Node &n) {
  Emitter &e = n.e;
  Value theta = n.in(0);
  auto size = n.ints(1);
  if (!theta || !size)
    return failure();
  int64_t axes = int64_t(size->size()) - 2;
  if ((axes != 2 && axes != 3) ||
      shapeOf(theta) != llvm::ArrayRef<int64_t>({(*size)[0], axes, axes + 1}))
    return n.fail("theta of shape " + shapeText(shapeOf(theta)) +
                  " does not fit the size");
  llvm::ArrayRef<int64_t> image = llvm::ArrayRef<int64_t>(*size).drop_front(2);
  if (elementCount(image) < 1)
    return n.fail("the size has no elements");
  bool align = n.i("align_corners", 0);
  auto at = [&](int64_t axis) { // coordinate of each position along one axis
    double count = double(image[axis]), span = align ? count - 1 : count;
    Value i = e.cast(e.iota(image, axis), elementOf(theta));
    if (span == 0)
      return e.like(i, -1);
    return e.add(e.mul(i, 2 / span), (align ? 0 : 1 / span) - 1);
  };
  llvm::SmallVector<Value> rows;
  for (int64_t i = axes; i-- > 0;)
    rows.push_back(e.reshape(at(i), {1, elementCount(image)}));
  rows.push_back(e.splat({1, elementCount(image)}, elementOf(theta), 1));
  Value moved = e.contract(theta, e.concat(rows, 0), {}, {}, {2}, {0}); // [N, axes, P]
  Ints shape = {(*size)[0]};
  shape.append(image.begin(), image.end());
  shape.push_back(axes);
  return n.out(moved ? e.reshape(e.transpose(moved, {0, 2, 1}), shape) : moved);
}

/// The operand under each tap of the kernel, moved by the offsets: [N, C, taps, P].
struct Deformation {
  Window window;
  Ints output; // spatial
  int64_t groups, taps;
};

Value deformed(Node &n, Value x, Value offset, Value mask, const Deformation &d) {
  Emitter &e = n.e;
  int64_t batch = dimOf(x, 0), channels = dimOf(x, 1), axes = rankOf(x) - 2;
  int64_t places = elementCount(d.output), rows = batch * d.groups;
  Value moves = e.reshape(offset, {rows, d.taps, axes, places});
  Ints grid = d.window.kernel;
  grid.append(d.output.begin(), d.output.end());
  llvm::SmallVector<Value> at;
  for (int64_t i = 0; i < axes; ++i) {
    Value tap = e.mul(e.iota(grid, i), double(d.window.dilations[i]));
    Value place = e.mul(e.iota(grid, axes + i), double(d.window.strides[i]));
    Value still = e.add(e.add(tap, place), double(-d.window.begin[i]));
    still = e.reshape(e.cast(still, elementOf(x)), {1, d.taps * places});
    Value move = e.reshape(e.sliceAxis(moves, 2, i, 1), {rows, d.taps * places});
    at.push_back(e.add(move, still));
  }
  Ints split = {rows, channels / d.groups};
  auto image = shapeOf(x).drop_front(2);
  split.append(image.begin(), image.end());
  Value y = Sampler(e, e.reshape(x, split), Outside::Zeros, true).linear(at);
  if (mask)
    y = e.mul(y, e.reshape(mask, {rows, 1, d.taps * places}));
  return e.reshape(y, {batch, channels, d.taps, places});
}

LogicalResult importDeformConv(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1), offset = n.in(2);
  Value mask = n.has(4) ? n.in(4) : Value();
  if (!x || !w || !offset || rankOf(x) < 3 || rankOf(w) != rankOf(x))
    return failure();
  auto image = shapeOf(x).drop_front(2);
  auto window = readWindow(n, image, Ints(shapeOf(w).drop_front(2)));
  auto output = window ? windowOutput(n, *window, image, false) : std::nullopt;
  if (!output)
    return failure();
  int64_t groups = n.i("group", 1), batch = dimOf(x, 0), channels = dimOf(x, 1);
  Deformation d{*window, *output, n.i("offset_group", 1), elementCount(window->kernel)};
  int64_t filters = dimOf(w, 0), places = elementCount(d.output);
  Ints offsets = {batch, d.groups * d.taps * int64_t(image.size())};
  offsets.append(d.output.begin(), d.output.end());
  if (groups < 1 || d.groups < 1 || channels % groups || channels % d.groups ||
      filters % groups || dimOf(w, 1) * groups != channels ||
      shapeOf(offset) != llvm::ArrayRef<int64_t>(offsets))
    return n.fail("weights of " + shapeText(shapeOf(w)) + " and offsets of " +
                  shapeText(shapeOf(offset)) + " do not fit the operand");
  Value columns = deformed(n, x, offset, mask, d);
  int64_t depth = channels / groups * d.taps;
  Value y = e.contract(e.reshape(columns, {batch, groups, depth, places}),
                       e.reshape(w, {groups, filters / groups, depth}), {1}, {0}, {2},
                       {2}); // [groups, N, P, filters of the group]
  if (!y)
    return failure();
  Ints shape = {batch, filters};
  shape.append(d.output.begin(), d.output.end());
  y = e.reshape(e.transpose(y, {1, 0, 3, 2}), shape);
  if (n.has(3))
    y = e.add(y, e.along(n.in(3), shape, 1));
  return n.out(y);
}

} // namespace

void addGridSample(OpTable &table) {
  table["GridSample"] = importGridSample;
  table["AffineGrid"] = importAffineGrid;
  table["DeformConv"] = importDeformConv;
}

} // namespace sluice::frontend
