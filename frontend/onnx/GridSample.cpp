// GridSample: each output element is a weighted sum of operand elements at computed
// positions.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

class Sampler {
public:
  Sampler(Emitter &e, Value x, std::string padding, bool align)
      : e(e), padding(std::move(padding)), align(align) {
    shape.assign(shapeOf(x).begin(), shapeOf(x).end());
    table = e.reshape(x, {shape[0], shape[1], shape[2] * shape[3]});
  }

  /// Positions in [-1, 1] as element coordinates of an axis of `size`.
  Value coordinate(Value g, int64_t size) {
    return align ? e.mul(e.add(g, 1), double(size - 1) / 2)
                 : e.add(e.mul(e.add(g, 1), double(size) / 2), -0.5);
  }
  /// Moves positions outside into the operand, as the padding mode says.
  Value padded(Value at, int64_t size) {
    if (padding == "border")
      return clamp(e, at, 0, double(size - 1));
    if (padding != "reflection")
      return at;
    double low = align ? 0 : -0.5, span = align ? double(size - 1) : double(size);
    if (span == 0)
      return e.like(at, 0);
    Value far = e.un("abs", e.add(at, -low)); // a triangle wave of period 2 * span
    Value period = e.un("floor", e.mul(far, 1 / (2 * span)));
    Value phase = e.sub(far, e.mul(period, 2 * span));
    Value folded = e.sub(span, e.un("abs", e.sub(span, phase)));
    return clamp(e, e.add(folded, low), 0, double(size - 1));
  }
  /// Elements [N, C, positions] at integer coordinates [N, positions]; 0 outside.
  Value take(Value row, Value column) {
    bool bounded = padding != "zeros";
    Value r = bounded ? padded(row, shape[2]) : row,
          c = bounded ? padded(column, shape[3]) : column;
    Value inside;
    auto check = [&](Value v, int64_t size) {
      Value ok = e.bin("and", e.cmp(v, 0, "ge"), e.cmp(v, double(size - 1), "le"));
      inside = inside ? e.bin("and", inside, ok) : ok;
    };
    check(r, shape[2]);
    check(c, shape[3]);
    Value index = e.add(e.mul(clamp(e, r, 0, double(shape[2] - 1)), double(shape[3])),
                        clamp(e, c, 0, double(shape[3] - 1)));
    if (!index)
      return {};
    Ints full = {shape[0], shape[1], dimOf(index, 1)};
    Value flat = e.broadcast(e.unsqueeze(e.cast(index, e.i64Type()), 1), full);
    Value taken = e.op("gather_elements", {table, flat}, {e.i64("axis", 2)});
    return taken ? e.select(e.unsqueeze(inside, 1), taken, e.like(taken, 0)) : taken;
  }

  Value linear(Value row, Value column) {
    Value r0 = e.un("floor", row), c0 = e.un("floor", column), sum;
    for (int i : {0, 1})
      for (int j : {0, 1}) {
        Value wr = e.sub(row, r0), wc = e.sub(column, c0);
        Value weight = e.mul(i ? wr : e.sub(1, wr), j ? wc : e.sub(1, wc));
        Value part = e.mul(take(e.add(r0, i), e.add(c0, j)), e.unsqueeze(weight, 1));
        sum = sum ? e.add(sum, part) : part;
      }
    return sum;
  }
  Value cubic(Value row, Value column) {
    Value r0 = e.un("floor", row), c0 = e.un("floor", column), sum;
    for (int i = -1; i <= 2; ++i)
      for (int j = -1; j <= 2; ++j) {
        Value weight = e.mul(keys(e.sub(row, e.add(r0, i)), i),
                             keys(e.sub(column, e.add(c0, j)), j));
        Value part = e.mul(take(e.add(r0, i), e.add(c0, j)), e.unsqueeze(weight, 1));
        sum = sum ? e.add(sum, part) : part;
      }
    return sum;
  }

private:
  /// Keys' kernel (a = -0.75) at distance |d|; taps 0 and 1 lie within 1, the others
  /// within 2.
  Value keys(Value d, int tap) {
    constexpr double a = -0.75;
    Value t = e.un("abs", d);
    if (tap == 0 || tap == 1)
      return e.add(e.mul(e.mul(e.add(e.mul(t, a + 2), -(a + 3)), t), t), 1);
    return e.add(e.mul(e.add(e.mul(e.add(e.mul(t, a), -5 * a), t), 8 * a), t), -4 * a);
  }

  Emitter &e;
  std::string padding;
  bool align;
  Ints shape;
  Value table;
};

LogicalResult importGridSample(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), grid = n.in(1);
  if (!x || !grid)
    return failure();
  if (rankOf(x) != 4 || rankOf(grid) != 4 || dimOf(grid, 3) != 2 ||
      dimOf(grid, 0) != dimOf(x, 0) || elementCount(shapeOf(x)) == 0)
    return n.fail("only images [N, C, H, W] with a grid [N, h, w, 2] are supported yet");
  std::string mode = n.s("mode", n.version < 20 ? "bilinear" : "linear");
  std::string padding = n.s("padding_mode", "zeros");
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return n.fail("padding_mode '" + padding + "' is unknown");
  Ints out = {dimOf(x, 0), dimOf(x, 1), dimOf(grid, 1), dimOf(grid, 2)};
  Sampler sampler(e, x, padding, n.i("align_corners", 0));
  auto positions = [&](int64_t k, int64_t size) {
    Value g = e.reshape(e.sliceAxis(grid, 3, k, 1), {out[0], out[2] * out[3]});
    return sampler.coordinate(g, size);
  };
  Value column = positions(0, dimOf(x, 3)), row = positions(1, dimOf(x, 2)), y;
  if (mode == "nearest")
    y = sampler.take(e.un("round", sampler.padded(row, dimOf(x, 2))),
                     e.un("round", sampler.padded(column, dimOf(x, 3))));
  else if (mode == "bilinear" || mode == "linear")
    y = sampler.linear(sampler.padded(row, dimOf(x, 2)),
                       sampler.padded(column, dimOf(x, 3)));
  else if (mode == "bicubic" || mode == "cubic")
    y = sampler.cubic(row, column);
  else
    return n.fail("mode '" + mode + "' is unknown");
  return n.out(e.reshape(y, out));
}

} // namespace

void addGridSample(OpTable &table) { table["GridSample"] = importGridSample; }

} // namespace sluice::frontend
