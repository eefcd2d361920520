// Random numbers and dropout: keyed by the runtime's seed, the update, the sample and a
// number of the operation that is stable from one import to the next.
#include "frontend/onnx/OpTable.h"

#include <numbers>

namespace sluice::frontend {

namespace {

Value uniform(Node &n, llvm::ArrayRef<int64_t> shape) {
  GraphImporter &g = n.importer;
  if (n.hasAttr("seed"))
    g.note("random", "attribute 'seed' of nodes is not used; the spec's `seed` is");
  return n.e.op("random_uniform",
                {g.control("seed"), g.control("update"), g.control("sample")},
                {n.e.i64s("shape", shape), n.e.i64("id", g.nextRandomId())});
}
/// Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v)
Value normal(Node &n, llvm::ArrayRef<int64_t> shape) {
  Emitter &e = n.e;
  Value radius = e.un("sqrt", e.mul(e.un("log", e.sub(1, uniform(n, shape))), -2));
  return e.mul(radius, e.un("cos", e.mul(uniform(n, shape), 2 * std::numbers::pi)));
}

std::optional<Ints> randomShape(Node &n, bool like) {
  if (!like) {
    auto shape = n.is("shape");
    if (!shape || llvm::any_of(*shape, [](int64_t d) { return d < 0; })) {
      n.e.fail("attribute 'shape' is missing or not valid");
      return std::nullopt;
    }
    return shape;
  }
  Value x = n.in(0);
  return x ? std::optional<Ints>(Ints(shapeOf(x))) : std::nullopt;
}
Type randomType(Node &n, bool like) {
  if (n.hasAttr("dtype"))
    return elementType(n.e.context(), int32_t(n.i("dtype", 1)));
  return like && n.in(0) && isFloat(n.in(0)) ? elementOf(n.in(0)) : n.e.f32();
}

template <bool like> LogicalResult importUniform(Node &n) {
  auto shape = randomShape(n, like);
  Type type = randomType(n, like);
  if (!shape || !type)
    return failure();
  double low = n.f("low", 0), high = n.f("high", 1);
  return n.out(n.e.cast(n.e.add(n.e.mul(uniform(n, *shape), high - low), low), type));
}
template <bool like> LogicalResult importNormal(Node &n) {
  auto shape = randomShape(n, like);
  Type type = randomType(n, like);
  if (!shape || !type)
    return failure();
  double mean = n.f("mean", 0), scale = n.f("scale", 1);
  return n.out(n.e.cast(n.e.add(n.e.mul(normal(n, *shape), scale), mean), type));
}
LogicalResult importBernoulli(Node &n) {
  Value x = n.in(0);
  Type type = n.hasAttr("dtype") ? elementType(n.e.context(), int32_t(n.i("dtype", 1)))
              : x                ? elementOf(x)
                                 : Type();
  if (!x || !type)
    return failure();
  Value draw = uniform(n, shapeOf(x));
  return n.out(n.e.cast(n.e.cmp(draw, n.e.cast(x, n.e.f32()), "lt"), type));
}

/// Draws classes by their logarithmic weights [batch, classes]: how many cumulative
/// probabilities a uniform number passes.
LogicalResult importMultinomial(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t count = n.i("sample_size", 1);
  Type type = elementType(n.e.context(), int32_t(n.i("dtype", onnx::TensorProto::INT32)));
  if (!x || rankOf(x) != 2 || count < 1 || dimOf(x, 1) < 1 || !type || !isFloat(x))
    return n.fail("the operand or an attribute does not fit");
  Value weights = e.op("softmax", {e.cast(x, e.f32())}, {e.i64("axis", 1)});
  Value passed = e.op("cumsum", {weights}, {e.i64("axis", 1)});
  if (!passed)
    return failure();
  passed = e.unsqueeze(e.sliceAxis(passed, 1, 0, dimOf(x, 1) - 1), 1); // the last is 1
  Value draw = e.unsqueeze(uniform(n, {dimOf(x, 0), count}), 2);
  Value below = e.cast(e.cmp(passed, draw, "le"), e.i64Type());
  return n.out(e.cast(e.reduce(below, "sum", {2}, false), type));
}

/// In training mode only from opset 12 on, where operand 2 says so; before, `is_test`.
LogicalResult importDropout(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  double ratio = n.f("ratio", 0.5f);
  bool training = n.version < 7 && n.hasAttr("is_test") && !n.i("is_test", 0);
  if (n.version >= 12) {
    if (n.has(1)) {
      auto given = n.constant(1);
      if (!given || given->size() != 1)
        return failure();
      ratio = given->isReal() ? given->reals[0] : double(given->integers[0]);
    }
    if (n.has(2)) {
      auto mode = n.constant(2);
      if (!mode || mode->size() != 1)
        return failure();
      training = mode->integers[0] != 0;
    }
  }
  if (!(ratio >= 0 && ratio < 1))
    return n.fail("the ratio is " + std::to_string(ratio) +
                  ", expected at least 0 and less than 1");
  if (!training || ratio == 0) {
    Type mask = n.version < 10 ? elementOf(x) : e.boolType();
    return failed(n.out(0, x)) ? failure() : n.out(1, e.splat(shapeOf(x), mask, 1));
  }
  GraphImporter &g = n.importer;
  auto results =
      e.ops("dropout", {x, g.control("seed"), g.control("update"), g.control("sample")},
            {e.f64("ratio", ratio), e.i64("id", g.nextRandomId())});
  return failed(n.out(0, results[0])) ? failure() : n.out(1, results[1]);
}

} // namespace

void addRandom(OpTable &table) {
  table["RandomUniform"] = importUniform<false>;
  table["RandomUniformLike"] = importUniform<true>;
  table["RandomNormal"] = importNormal<false>;
  table["RandomNormalLike"] = importNormal<true>;
  table["Bernoulli"] = importBernoulli;
  table["Multinomial"] = importMultinomial;
  table["Dropout"] = importDropout;
}

} // namespace sluice::frontend
