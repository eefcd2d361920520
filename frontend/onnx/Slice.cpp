// Slice, Split and their relatives.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// ONNX's clamping of one axis: [start, end) by step, negative numbers from the back.
struct AxisSlice {
  int64_t start, size, step;
};
AxisSlice clampSlice(int64_t dim, int64_t start, int64_t end, int64_t step) {
  auto fromFront = [dim](int64_t i) { return i < 0 && i >= -dim ? i + dim : i; };
  step = std::clamp(step, -(int64_t(1) << 40), int64_t(1) << 40);
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
  start = std::clamp(fromFront(start), step > 0 ? int64_t(0) : int64_t(0), high);
  end = std::clamp(end < -dim ? low : fromFront(end), low, step > 0 ? dim : dim - 1);
  int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
  return {start, dim == 0 || span <= 0 ? 0 : (span + by - 1) / by, step};
}

LogicalResult importSlice(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  bool operands = n.version >= 10;
  auto starts = operands ? n.ints(1) : n.is("starts");
  auto ends = operands ? n.ints(2) : n.is("ends");
  if (!starts || !ends)
    return failure();
  std::optional<Ints> axes = range(starts->size()), steps = Ints(starts->size(), 1);
  if (operands ? n.has(3) : n.hasAttr("axes"))
    axes = operands ? n.ints(3) : n.is("axes");
  if (operands && n.has(4))
    steps = n.ints(4);
  if (!axes || !steps || axes->size() != starts->size() ||
      ends->size() != starts->size() || steps->size() != starts->size())
    return n.fail("starts, ends, axes and steps differ in length or are not known");
  Ints from(rankOf(x), 0), sizes(shapeOf(x)), by(rankOf(x), 1);
  for (size_t i = 0; i < starts->size(); ++i) {
    auto axis = n.axis((*axes)[i], rankOf(x));
    if (!axis)
      return failure();
    if ((*steps)[i] == 0)
      return n.fail("a step is 0");
    AxisSlice s = clampSlice(dimOf(x, *axis), (*starts)[i], (*ends)[i], (*steps)[i]);
    from[*axis] = s.start, sizes[*axis] = s.size, by[*axis] = s.step;
  }
  return n.out(n.e.slice(x, from, sizes, by));
}

/// Sizes by attribute or operand, else equal parts (the last may be smaller from opset 18
/// on).
std::optional<Ints> splitSizes(Node &n, int64_t dim) {
  if (n.has(1))
    return n.ints(1);
  if (auto sizes = n.is("split"))
    return sizes;
  int64_t parts = n.version >= 18 ? n.i("num_outputs", n.outputs()) : n.outputs();
  if (parts < 1 || parts > 1 << 20 || (n.version < 18 && dim % parts != 0)) {
    n.e.fail("cannot split " + llvm::Twine(dim) + " into " + llvm::Twine(parts));
    return std::nullopt;
  }
  int64_t size = (dim + parts - 1) / parts;
  Ints sizes(parts, size);
  sizes.back() = dim - size * (parts - 1);
  return sizes;
}
LogicalResult importSplit(Node &n) {
  Value x = n.in(0);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  auto sizes = axis ? splitSizes(n, dimOf(x, *axis)) : std::nullopt;
  if (!sizes)
    return failure();
  if (static_cast<int>(sizes->size()) < n.outputs())
    return n.fail("has more outputs than parts");
  int64_t start = 0;
  for (int i = 0; i < static_cast<int>(sizes->size()); start += (*sizes)[i++]) {
    int64_t dim = dimOf(x, *axis);
    if ((*sizes)[i] < 0 || (*sizes)[i] > dim - start)
      return n.fail("the parts do not add up to " + llvm::Twine(dim));
    if (n.wants(i) && failed(n.out(i, n.e.sliceAxis(x, *axis, start, (*sizes)[i]))))
      return failure();
  }
  return success();
}

/// Each sequence's first `length` steps in reverse, by an index per element.
LogicalResult importReverseSequence(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), lengths = n.in(1);
  if (!x || !lengths || rankOf(x) < 2 || rankOf(lengths) != 1)
    return failure();
  auto batch = n.axis(n.i("batch_axis", 1), rankOf(x));
  auto time = n.axis(n.i("time_axis", 0), rankOf(x));
  if (!batch || !time || *batch == *time)
    return failure();
  Value step = e.iota(shapeOf(x), *time);
  Value length = e.along(lengths, shapeOf(x), *batch);
  Value mirrored = e.add(e.sub(length, step), -1);
  Value index = e.select(e.cmp(step, length, "lt"), mirrored, step);
  return n.out(e.op("gather_elements", {x, index}, {e.i64("axis", *time)}));
}

} // namespace

void addSlice(OpTable &table) {
  table["Slice"] = importSlice;
  table["Split"] = importSplit;
  table["ReverseSequence"] = importReverseSequence;
}

} // namespace sluice::frontend
