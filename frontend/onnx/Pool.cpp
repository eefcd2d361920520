// Pooling.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Window.h"

namespace sluice::frontend {

namespace {

Value pool(Node &n, llvm::StringRef name, Value x, const Window &w, const Ints &output,
           bool countPadding) {
  auto attributes = windowAttributes(n.e, w);
  attributes.push_back(n.e.i64s("kernel", w.kernel));
  attributes.push_back(n.e.i64s("output", output));
  if (countPadding)
    attributes.push_back(n.e.flag("count_include_pad"));
  return n.e.op(name, {x}, attributes);
}

struct Pooling {
  Value x;
  Window window;
  Ints output;
};
std::optional<Pooling> readPooling(Node &n) {
  Pooling p;
  p.x = n.in(0);
  if (!p.x || rankOf(p.x) < 3) {
    n.e.fail("the operand needs a rank of 3 or more");
    return std::nullopt;
  }
  auto spatial = shapeOf(p.x).drop_front(2);
  auto window = readWindow(n, spatial, std::nullopt);
  if (!window)
    return std::nullopt;
  p.window = *window;
  bool same = llvm::StringRef(n.s("auto_pad", "")).starts_with("SAME");
  auto output = windowOutput(n, p.window, spatial, n.i("ceil_mode", 0) && !same);
  if (!output)
    return std::nullopt;
  p.output = *output;
  return p;
}

LogicalResult importMaxPool(Node &n) {
  auto p = readPooling(n);
  if (!p)
    return failure();
  Type type = elementOf(p->x);
  Value x = isFloat(p->x) ? p->x : n.e.cast(p->x, n.e.f32());
  if (n.wants(1) && failed(n.out(1, maxPoolIndices(n, x, p->window, p->output))))
    return failure();
  return n.out(n.e.cast(pool(n, "max_pool", x, p->window, p->output, false), type));
}
LogicalResult importAveragePool(Node &n) {
  auto p = readPooling(n);
  if (!p)
    return failure();
  bool count = n.i("count_include_pad", 0);
  return n.out(pool(n, "avg_pool", p->x, p->window, p->output, count));
}

/// |x|^p for an integer or real p.
Value power(Emitter &e, Value x, double p) {
  if (p == 2)
    return e.mul(x, x);
  Value size = e.un("abs", x);
  return p == 1 ? size : e.bin("pow", size, e.like(size, p));
}
Value root(Emitter &e, Value x, double p) {
  if (p == 2)
    return e.un("sqrt", x);
  return p == 1 ? x : e.bin("pow", x, e.like(x, 1 / p));
}
/// (sum |x|^p)^(1/p); the sum is the mean over the padded window times its size.
LogicalResult importLpPool(Node &n) {
  auto p = readPooling(n);
  if (!p)
    return failure();
  Ints low(2, 0), high(2, 0);
  auto spatial = shapeOf(p->x).drop_front(2);
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t reach = (p->output[i] - 1) * p->window.strides[i] + p->window.extent(i);
    low.push_back(p->window.begin[i]);
    high.push_back(std::max<int64_t>(reach - spatial[i] - p->window.begin[i], 0));
  }
  double norm = n.version < 2 ? n.f("p", 2) : double(n.i("p", 2));
  Value x = n.e.pad(power(n.e, p->x, norm), low, high, 0);
  p->window.begin.assign(spatial.size(), 0);
  p->window.end.assign(spatial.size(), 0);
  Value mean = pool(n, "avg_pool", x, p->window, p->output, false);
  return n.out(root(n.e, n.e.mul(mean, double(elementCount(p->window.kernel))), norm));
}

std::optional<Ints> spatialAxes(Node &n, Value x) {
  if (!x || rankOf(x) < 2) {
    n.e.fail("the operand needs a rank of 2 or more");
    return std::nullopt;
  }
  Ints axes = range(rankOf(x));
  axes.erase(axes.begin(), axes.begin() + 2);
  return axes;
}
LogicalResult importGlobalAverage(Node &n) {
  Value x = n.in(0);
  auto axes = spatialAxes(n, x);
  return axes ? n.out(n.e.mean(x, *axes, true)) : failure();
}
LogicalResult importGlobalMax(Node &n) {
  Value x = n.in(0);
  auto axes = spatialAxes(n, x);
  return axes ? n.out(n.e.reduce(x, "max", *axes, true)) : failure();
}
LogicalResult importGlobalLp(Node &n) {
  Value x = n.in(0);
  auto axes = spatialAxes(n, x);
  double p = n.version < 2 ? n.f("p", 2) : double(n.i("p", 2));
  return axes ? n.out(root(n.e, n.e.reduce(power(n.e, x, p), "sum", *axes, true), p))
              : failure();
}

} // namespace

void addPool(OpTable &table) {
  table["MaxPool"] = importMaxPool;
  table["AveragePool"] = importAveragePool;
  table["LpPool"] = importLpPool;
  table["GlobalAveragePool"] = importGlobalAverage;
  table["GlobalMaxPool"] = importGlobalMax;
  table["GlobalLpPool"] = importGlobalLp;
}

} // namespace sluice::frontend
