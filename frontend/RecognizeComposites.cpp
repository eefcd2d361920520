// Composites in decomposed form, as exporters write them. Each matcher starts at the last
// operation of the pattern and walks up; a match replaces one value, and what it leaves
// unused is dropped with the dead code. Runs in order, so inner patterns (a variance) are
// still there when outer ones are looked for.
#include "frontend/RecognizeComposites.h"

#include <cmath>
#include <numbers>
#include <optional>

namespace sluice {

using namespace mlir;
using namespace sluice::graph;

namespace {

std::optional<double> splatValue(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : nullptr;
  if (!dense || !dense.isSplat())
    return std::nullopt;
  APFloat number = dense.getSplatValue<APFloat>();
  bool lost;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}
bool isSplat(Value value, double expected, double tolerance = 1e-6) {
  auto number = splatValue(value);
  return number && std::abs(*number - expected) <= tolerance * std::abs(expected);
}

/// The two operands of a commutative operation, one of which satisfies `first`.
template <typename Op, typename F>
std::optional<std::pair<Value, Value>> operands(Value value, F first) {
  auto op = value ? value.getDefiningOp<Op>() : Op();
  if (!op)
    return std::nullopt;
  if (first(op.getA()))
    return std::pair(op.getA(), op.getB());
  if (first(op.getB()))
    return std::pair(op.getB(), op.getA());
  return std::nullopt;
}
/// x of x * c or x / (1 / c).
Value scaledBy(Value value, double factor) {
  if (auto pair = operands<MulOp>(value, [&](Value v) { return isSplat(v, factor); }))
    return pair->second;
  auto div = value ? value.getDefiningOp<DivOp>() : DivOp();
  return div && isSplat(div.getB(), 1 / factor) ? div.getA() : Value();
}
/// x of x + c.
Value shiftedBy(Value value, double offset) {
  auto pair = operands<AddOp>(value, [&](Value v) { return isSplat(v, offset); });
  return pair ? pair->second : Value();
}
/// What is broadcast, or the value itself.
Value unbroadcast(Value value) {
  auto op = value ? value.getDefiningOp<BroadcastOp>() : BroadcastOp();
  return op ? op.getX() : value;
}

/// The first of dimensions axis.. that `x` is reduced over, with the result kept as 1s.
std::optional<int64_t> trailingAxes(ReduceOp reduce) {
  int64_t rank = tensorType(reduce.getX()).getRank();
  auto axes = reduce.getAxes();
  int64_t first = rank - static_cast<int64_t>(axes.size());
  for (auto [i, axis] : llvm::enumerate(axes))
    if (axis != first + static_cast<int64_t>(i))
      return std::nullopt;
  return axes.empty() || !reduce.getKeep() ? std::nullopt : std::optional<int64_t>(first);
}

/// A mean over trailing axes: sum / count, or sum * (1 / count).
struct Mean {
  Value x;
  int64_t axis;
};
std::optional<Mean> matchMean(Value value) {
  value = unbroadcast(value);
  auto div = value ? value.getDefiningOp<DivOp>() : DivOp();
  Value sum = div ? div.getA() : Value();
  std::optional<double> factor = div ? splatValue(div.getB()) : std::nullopt;
  if (auto pair =
          operands<MulOp>(value, [](Value v) { return splatValue(v).has_value(); })) {
    sum = pair->second;
    factor = 1 / *splatValue(pair->first);
  }
  auto reduce = sum ? sum.getDefiningOp<ReduceOp>() : ReduceOp();
  if (!reduce || !factor || reduce.getKind() != "sum")
    return std::nullopt;
  auto axis = trailingAxes(reduce);
  if (!axis)
    return std::nullopt;
  double count = 1;
  for (int64_t dim : tensorType(reduce.getX()).getShape().drop_front(*axis))
    count *= static_cast<double>(dim);
  if (std::abs(*factor - count) > 1e-6 * count)
    return std::nullopt;
  return Mean{reduce.getX(), *axis};
}

/// x / sqrt(mean(x^2) + epsilon): x and what it was normalised with.
struct Normalized {
  Value x;
  int64_t axis;
  double epsilon;
};
/// Whether `value` is 1 / sqrt(s) (or, with `inverse` false, sqrt(s)); gives s.
Value matchRoot(Value value, bool inverse) {
  value = unbroadcast(value);
  if (!value)
    return {};
  if (!inverse) {
    auto root = value.getDefiningOp<SqrtOp>();
    return root ? root.getX() : Value();
  }
  if (auto root = value.getDefiningOp<RsqrtOp>())
    return root.getX();
  auto div = value.getDefiningOp<DivOp>();
  return div && isSplat(div.getA(), 1) ? matchRoot(div.getB(), false) : Value();
}
std::optional<Normalized> matchScale(Value x, Value variance) {
  auto pair =
      operands<AddOp>(variance, [](Value v) { return splatValue(v).has_value(); });
  auto mean = pair ? matchMean(pair->second) : std::nullopt;
  auto square = mean ? mean->x.getDefiningOp<MulOp>() : MulOp();
  if (!square || square.getA() != square.getB() || square.getA() != x)
    return std::nullopt;
  return Normalized{x, mean->axis, *splatValue(pair->first)};
}
std::optional<Normalized> matchNormalized(Value value) {
  if (auto div = value.getDefiningOp<DivOp>())
    if (Value variance = matchRoot(div.getB(), false))
      return matchScale(div.getA(), variance);
  auto mul = value.getDefiningOp<MulOp>();
  if (!mul)
    return std::nullopt;
  for (auto [x, root] :
       {std::pair(mul.getA(), mul.getB()), std::pair(mul.getB(), mul.getA())})
    if (Value variance = matchRoot(root, true))
      if (auto found = matchScale(x, variance))
        return found;
  return std::nullopt;
}

/// The shape x.shape[axis:] operand that is broadcast to `value`; null if it varies
/// before axis.
Value affineOperand(OpBuilder &builder, Location loc, Value value, int64_t axis) {
  Value source = unbroadcast(value);
  auto type = tensorType(source), full = tensorType(value);
  auto shape = full.getShape().drop_front(axis);
  int64_t leading = type.getRank() - static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < leading; ++i)
    if (type.getDimSize(i) != 1)
      return {};
  if (source == value && axis > 0) {
    auto splat = splatValue(value);
    if (!splat)
      return {};
    auto small = RankedTensorType::get(shape, full.getElementType());
    return builder.create<ConstantOp>(
        loc, ElementsAttr(DenseElementsAttr::get(
                 small, Attribute(builder.getFloatAttr(full.getElementType(), *splat)))));
  }
  if (leading > 0)
    source = builder.create<ReshapeOp>(loc, source, type.getShape().drop_front(leading));
  if (tensorType(source).getShape() != shape)
    source = builder.create<BroadcastOp>(loc, source, shape);
  return source;
}

class Recognizer {
public:
  explicit Recognizer(func::FuncOp function) : function(function), builder(function) {}

  std::map<std::string, int64_t> run() {
    for (auto pass : {&Recognizer::normalisation, &Recognizer::activation})
      for (Operation &op :
           llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
        else if (op.getNumResults() == 1)
          replace(&op, pass);
    return counts;
  }

private:
  void replace(Operation *op, Value (Recognizer::*match)(Operation *)) {
    builder.setInsertionPoint(op);
    Value found = (this->*match)(op);
    if (!found)
      return;
    op->getResult(0).replaceAllUsesWith(found);
    ++counts[found.getDefiningOp()->getName().stripDialect().str()];
    op->erase();
  }

  /// normalised * scale (+ bias), where the normalised value is x - mean(x) for
  /// LayerNorm.
  Value normalisation(Operation *op) {
    Value bias, scale;
    Value product = op->getResult(0);
    std::optional<Normalized> found;
    auto split = [&](Value value) {
      auto mul = value.getDefiningOp<MulOp>();
      if (!mul)
        return false;
      for (auto [x, other] :
           {std::pair(mul.getA(), mul.getB()), std::pair(mul.getB(), mul.getA())})
        if ((found = matchNormalized(x))) {
          scale = other;
          return true;
        }
      return false;
    };
    if (auto add = dyn_cast<AddOp>(op)) {
      for (auto [x, other] :
           {std::pair(add.getA(), add.getB()), std::pair(add.getB(), add.getA())})
        if (!found && split(x))
          bias = other, product = x;
    } else if (isa<MulOp>(op)) {
      split(product);
    }
    return found ? build(op->getLoc(), *found, scale, bias) : softmax(op);
  }

  Value build(Location loc, const Normalized &found, Value scale, Value bias) {
    auto centred = found.x.getDefiningOp<SubOp>();
    auto mean = centred ? matchMean(centred.getB()) : std::nullopt;
    bool layer = mean && mean->x == centred.getA() && mean->axis == found.axis;
    if (bias && !layer)
      return {}; // RMSNorm ends at the product; the addition stays
    Value gamma = affineOperand(builder, loc, scale, found.axis);
    Value beta = bias ? affineOperand(builder, loc, bias, found.axis) : Value();
    if (!gamma || (bias && !beta))
      return {};
    if (!layer)
      return builder
          .create<RmsNormOp>(loc, found.x, gamma, uint64_t(found.axis),
                             APFloat(found.epsilon))
          .getY();
    // Without a bias, wait for the addition that may follow.
    return builder
        .create<LayerNormOp>(loc, centred.getA(), gamma, beta, uint64_t(found.axis),
                             APFloat(found.epsilon))
        .getY();
  }

  /// e^(x - max(x)) / sum(e^(x - max(x))), the maximum optional.
  Value softmax(Operation *op) {
    auto div = dyn_cast<DivOp>(op);
    auto exp = div ? div.getA().getDefiningOp<ExpOp>() : ExpOp();
    Value total = div ? unbroadcast(div.getB()) : Value();
    auto sum = total ? total.getDefiningOp<ReduceOp>() : ReduceOp();
    if (!exp || !sum || sum.getKind() != "sum" || sum.getX() != exp.getY() ||
        sum.getAxes().size() != 1 || !sum.getKeep())
      return {};
    Value x = exp.getX();
    if (auto sub = x.getDefiningOp<SubOp>()) {
      Value shift = unbroadcast(sub.getB());
      auto max = shift ? shift.getDefiningOp<ReduceOp>() : ReduceOp();
      if (max && max.getKind() == "max" && max.getX() == sub.getA() &&
          max.getAxes() == sum.getAxes())
        x = sub.getA();
    }
    return builder.create<SoftmaxOp>(op->getLoc(), x, uint64_t(sum.getAxes()[0]));
  }

  Value activation(Operation *op) {
    if (!isa<MulOp>(op))
      return {};
    Value product = op->getResult(0);
    auto mul = cast<MulOp>(op);
    for (auto [x, other] :
         {std::pair(mul.getA(), mul.getB()), std::pair(mul.getB(), mul.getA())}) {
      auto sigmoid = other.getDefiningOp<SigmoidOp>();
      if (sigmoid && sigmoid.getX() == x)
        return builder.create<SiluOp>(op->getLoc(), x);
    }
    return gelu(product, op->getLoc());
  }

  /// 0.5 * x * (1 + f), whose three factors come in any order.
  Value gelu(Value product, Location loc) {
    SmallVector<Value> factors;
    auto split = [&](Value value, auto &self, int depth) -> void {
      auto mul = depth < 2 ? value.getDefiningOp<MulOp>() : MulOp();
      if (!mul)
        return factors.push_back(value);
      self(mul.getA(), self, depth + 1);
      self(mul.getB(), self, depth + 1);
    };
    split(product, split, 0);
    if (factors.size() != 3)
      return {};
    for (int half = 0; half < 3; ++half) {
      if (!isSplat(factors[half], 0.5))
        continue;
      for (int gate : {(half + 1) % 3, (half + 2) % 3}) {
        Value x = factors[3 - half - gate], inner = shiftedBy(factors[gate], 1);
        if (!inner)
          continue;
        auto erf = inner.getDefiningOp<ErfOp>();
        if (erf && scaledBy(erf.getX(), 1 / std::numbers::sqrt2) == x)
          return builder.create<GeluOp>(loc, x, UnitAttr());
        auto tanh = inner.getDefiningOp<TanhOp>();
        if (tanh && isTanhForm(tanh.getX(), x))
          return builder.create<GeluOp>(loc, x, builder.getUnitAttr());
      }
    }
    return {};
  }
  /// sqrt(2 / pi) * (x + 0.044715 x^3), also with x factored out
  bool isTanhForm(Value value, Value x) {
    Value sum = scaledBy(value, std::sqrt(2 / std::numbers::pi));
    auto cubic = [&](Value v) {
      Value cube = scaledBy(v, 0.044715);
      auto outer = cube ? cube.getDefiningOp<MulOp>() : MulOp();
      auto square = outer ? outer.getA().getDefiningOp<MulOp>() : MulOp();
      Value other = outer ? outer.getB() : Value();
      if (outer && !square)
        square = outer.getB().getDefiningOp<MulOp>(), other = outer.getA();
      return square && other == x && square.getA() == x && square.getB() == x;
    };
    auto pair = operands<AddOp>(sum, cubic);
    return pair && pair->second == x;
  }

  func::FuncOp function;
  OpBuilder builder;
  std::map<std::string, int64_t> counts;
};

} // namespace

std::map<std::string, int64_t> recognizeComposites(func::FuncOp function) {
  return Recognizer(function).run();
}

} // namespace sluice
