// Resize and Upsample: one axis after the other, each by a gather (nearest) or a product
// with a matrix of interpolation weights.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>

namespace sluice::frontend {

namespace {

struct Axis {
  int64_t in, out;
  double scale, start = 0, end = 1; // start, end: the region of tf_crop_and_resize
};

struct Interpolation {
  std::string mode = "nearest", coordinates = "half_pixel",
              nearest = "round_prefer_floor";
  double cubic = -0.75, extrapolation = 0;
  bool excludeOutside = false, antialias = false;
};

/// Where output position `x` lies in the operand.
double original(const Interpolation &p, const Axis &a, double x) {
  double in = double(a.in), out = double(a.out), length = a.scale * in; // not rounded
  if (p.coordinates == "align_corners")
    return length <= 1 ? 0 : x * (in - 1) / (length - 1);
  if (p.coordinates == "asymmetric")
    return x / a.scale;
  if (p.coordinates == "tf_half_pixel_for_nn")
    return (x + 0.5) / a.scale;
  if (p.coordinates == "tf_crop_and_resize")
    return a.out > 1 ? a.start * (in - 1) + x * (a.end - a.start) * (in - 1) / (out - 1)
                     : 0.5 * (a.start + a.end) * (in - 1);
  if (p.coordinates == "pytorch_half_pixel" && a.out == 1)
    return 0;
  double offset = 0;
  if (p.coordinates == "half_pixel_symmetric")
    offset = in / 2 * (1 - out / (a.scale * in));
  return offset + (x + 0.5) / a.scale - 0.5;
}

int64_t nearestIndex(const Interpolation &p, const Axis &a, double x) {
  double index = p.nearest == "floor"               ? std::floor(x)
                 : p.nearest == "ceil"              ? std::ceil(x)
                 : p.nearest == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                    : std::ceil(x - 0.5);
  return std::clamp<int64_t>(static_cast<int64_t>(index), 0, a.in - 1);
}

double kernel(const Interpolation &p, double t) {
  t = std::abs(t);
  if (p.mode == "linear")
    return std::max(0.0, 1 - t);
  double A = p.cubic; // Keys' cubic convolution
  if (t <= 1)
    return ((A + 2) * t - (A + 3)) * t * t + 1;
  return t < 2 ? ((A * t - 5 * A) * t + 8 * A) * t - 4 * A : 0;
}

/// One row of weights: taps within the kernel's reach, those outside moved to the edge or
/// left out.
void addWeights(const Interpolation &p, const Axis &a, double x,
                llvm::MutableArrayRef<double> row) {
  double stretch = p.antialias && a.scale < 1 ? 1 / a.scale : 1;
  double reach = (p.mode == "linear" ? 1 : 2) * stretch, total = 0;
  for (int64_t i = int64_t(std::floor(x - reach)); double(i) <= x + reach; ++i) {
    double weight = kernel(p, (double(i) - x) / stretch);
    bool outside = i < 0 || i >= a.in;
    if (weight == 0 || (outside && p.excludeOutside))
      continue;
    row[std::clamp<int64_t>(i, 0, a.in - 1)] += weight;
    total += weight;
  }
  if ((p.excludeOutside || p.antialias) && total != 0)
    for (double &weight : row)
      weight /= total;
}

Value resizeAxis(Emitter &e, const Interpolation &p, Value x, int64_t axis,
                 const Axis &a) {
  if (a.in == 0 || elementCount({a.in, a.out}) > foldLarge)
    return e.fail("an axis of " + llvm::Twine(a.in) + " to " + llvm::Twine(a.out) +
                  " elements is not supported");
  bool nearest = p.mode == "nearest", crop = p.coordinates == "tf_crop_and_resize";
  Ints index;
  graph::HostTensor matrix = graph::HostTensor::zeros(
      mlir::RankedTensorType::get({a.out, nearest ? 0 : a.in}, elementOf(x)));
  graph::HostTensor inside =
      graph::HostTensor::zeros(mlir::RankedTensorType::get({a.out}, e.boolType()));
  bool allInside = true;
  for (int64_t i = 0; i < a.out; ++i) {
    double at = original(p, a, double(i));
    if (std::isnan(at) || std::abs(at) > 1e9)
      return e.fail("the scales are not valid");
    inside.integers[i] = !crop || (at >= 0 && at <= double(a.in - 1));
    allInside &= inside.integers[i] != 0;
    if (nearest)
      index.push_back(nearestIndex(p, a, at));
    else
      addWeights(p, a, at, llvm::MutableArrayRef(matrix.reals).slice(i * a.in, a.in));
  }
  Value y;
  if (nearest) {
    y = e.gather(x, e.ints(index), axis);
  } else { // the new dimension comes last
    y = e.contract(x, e.constant(matrix), {}, {}, {axis}, {1});
    Ints order = range(rankOf(x));
    order.erase(order.begin() + (rankOf(x) - 1));
    order.insert(order.begin() + axis, rankOf(x) - 1);
    y = e.transpose(y, order);
  }
  if (!y || allInside)
    return y;
  return e.select(e.along(e.constant(inside), shapeOf(y), axis), y,
                  e.like(y, p.extrapolation));
}

std::optional<llvm::SmallVector<double>> reals(Node &n, int i) {
  auto tensor = n.maybeConstant(i);
  if (!tensor || !tensor->isReal() || tensor->size() == 0)
    return std::nullopt;
  return llvm::SmallVector<double>(tensor->reals.begin(), tensor->reals.end());
}

/// Per given axis the scale or the size; keep_aspect_ratio_policy changes sizes.
bool applySizes(Node &n, std::vector<Axis> &axes, const Ints &which, const Ints &sizes) {
  std::string policy = n.s("keep_aspect_ratio_policy", "stretch");
  if (sizes.size() != which.size())
    return n.e.fail("expected one size per axis"), false;
  double common = policy == "not_larger" ? INFINITY : 0;
  for (auto [i, axis] : llvm::enumerate(which)) {
    double scale = double(sizes[i]) / double(axes[axis].in);
    common = policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
  }
  for (auto [i, axis] : llvm::enumerate(which)) {
    Axis &a = axes[axis];
    a.scale = policy == "stretch" ? double(sizes[i]) / double(a.in) : common;
    a.out = policy == "stretch" ? sizes[i]
                                : int64_t(std::floor(a.scale * double(a.in) + 0.5));
  }
  return true;
}

LogicalResult resize(Node &n, Value x, std::vector<Axis> axes, const Interpolation &p) {
  for (auto [i, a] : llvm::enumerate(axes)) {
    if (a.out < 0 || !(a.scale > 0) || a.out > int64_t(1) << 31)
      return n.fail("a scale or size is out of range");
    bool crop = p.coordinates == "tf_crop_and_resize" && (a.start != 0 || a.end != 1);
    if (a.out != a.in || a.scale != 1 || crop)
      x = resizeAxis(n.e, p, x, int64_t(i), a);
    if (!x)
      return failure();
  }
  return n.out(x);
}

LogicalResult importResize(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Interpolation p;
  p.mode = n.s("mode", "nearest");
  p.coordinates =
      n.s("coordinate_transformation_mode", n.version < 11 ? "asymmetric" : "half_pixel");
  p.nearest = n.s("nearest_mode", n.version < 11 ? "floor" : "round_prefer_floor");
  p.cubic = n.f("cubic_coeff_a", -0.75);
  p.extrapolation = n.f("extrapolation_value", 0);
  p.excludeOutside = n.i("exclude_outside", 0);
  p.antialias = n.i("antialias", 0);
  if (p.mode != "nearest" && p.mode != "linear" && p.mode != "cubic")
    return n.fail("mode '" + p.mode + "' is unknown");
  std::vector<Axis> axes;
  for (int64_t dim : shapeOf(x))
    axes.push_back({dim, dim, 1.0});
  Ints which = range(rankOf(x));
  if (auto given = n.is("axes")) {
    which.clear();
    for (int64_t value : *given) {
      auto axis = n.axis(value, rankOf(x));
      if (!axis)
        return failure();
      which.push_back(*axis);
    }
  }
  if (p.coordinates == "tf_crop_and_resize") {
    auto region = reals(n, 1);
    if (!region || region->size() != 2 * which.size())
      return n.fail("the region of tf_crop_and_resize is not known");
    for (auto [i, axis] : llvm::enumerate(which))
      axes[axis].start = (*region)[i], axes[axis].end = (*region)[which.size() + i];
  }
  if (auto scales = reals(n, n.version < 11 ? 1 : 2)) {
    if (scales->size() != which.size())
      return n.fail("expected one scale per axis");
    for (auto [i, axis] : llvm::enumerate(which)) {
      Axis &a = axes[axis];
      a.scale = (*scales)[i];
      double out = std::floor(double(a.in) * a.scale);
      a.out = out >= 0 && out < 1e9 ? int64_t(out) : -1;
    }
    return resize(n, x, axes, p);
  }
  auto sizes = n.has(3) ? n.ints(3) : std::nullopt;
  if (!sizes || !applySizes(n, axes, which, *sizes))
    return n.fail("its scales or sizes are not known");
  return resize(n, x, axes, p);
}

LogicalResult importUpsample(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  llvm::SmallVector<double> scales = n.fs("scales");
  if (n.version >= 9)
    scales = reals(n, 1).value_or(llvm::SmallVector<double>());
  if (static_cast<int64_t>(scales.size()) != rankOf(x))
    return n.fail("expected one known scale per dimension");
  Interpolation p;
  p.mode = n.s("mode", "nearest");
  p.mode = p.mode == "bilinear" || p.mode == "trilinear" ? "linear" : p.mode;
  p.coordinates = "asymmetric";
  p.nearest = "floor";
  std::vector<Axis> axes;
  for (auto [dim, scale] : llvm::zip(shapeOf(x), scales)) {
    double out = std::floor(double(dim) * scale);
    axes.push_back({dim, out >= 0 && out < 1e9 ? int64_t(out) : -1, scale});
  }
  return resize(n, x, axes, p);
}

} // namespace

void addResize(OpTable &table) {
  table["Resize"] = importResize;
  table["Upsample"] = importUpsample;
}

} // namespace sluice::frontend
