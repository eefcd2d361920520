#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/Limits.h"

#include "mlir/IR/Diagnostics.h"

#include <cmath>

namespace sluice::frontend {

using namespace mlir;

void Emitter::begin(Location location) {
  loc = location;
  firstError.clear();
}

Value Emitter::fail(const Twine &reason) {
  if (firstError.empty())
    firstError = reason.str();
  return {};
}

/// Result types by the op's own inference; what it reports becomes the error.
bool Emitter::infer(OperationState &state) {
  auto info = state.name.getRegisteredInfo();
  auto *interface = info ? info->getInterface<InferTypeOpInterface>() : nullptr;
  if (!interface)
    return fail("operation '" + state.name.getStringRef() + "' is not known"), false;
  ScopedDiagnosticHandler handler(context(), [&](Diagnostic &diagnostic) {
    fail(diagnostic.str());
    return success();
  });
  // The op's properties live here while its types are inferred.
  int bytes = info->getOpPropertyByteSize();
  std::vector<std::max_align_t> storage(bytes / sizeof(std::max_align_t) + 1);
  OpaqueProperties properties(bytes > 0 ? storage.data() : nullptr);
  DictionaryAttr attributes = state.attributes.getDictionary(context());
  bool ok = true;
  if (bytes > 0) {
    info->initOpProperties(properties, nullptr);
    info->populateDefaultProperties(properties);
    ok = succeeded(info->setOpPropertiesFromAttribute(state.name, properties, attributes,
                                                      [&] { return emitError(loc); }));
  }
  ok = ok &&
       succeeded(interface->inferReturnTypes(context(), loc, state.operands, attributes,
                                             properties, state.regions, state.types));
  if (bytes > 0)
    info->destroyOpProperties(properties);
  if (!ok)
    fail("operands do not fit '" + state.name.getStringRef() + "'");
  return ok;
}

bool Emitter::checkSizes(TypeRange types) {
  for (Type type : types) {
    auto shape = cast<RankedTensorType>(type).getShape();
    if (static_cast<int64_t>(shape.size()) > maxRank)
      return fail("a tensor of rank " + Twine(shape.size()) + " passes the limit of " +
                  Twine(maxRank)),
             false;
    if (llvm::any_of(shape, [](int64_t d) { return d < 0; }))
      return fail("a dimension would be negative: " + shapeText(shape)), false;
    if (elementCount(shape) > maxElements)
      return fail("a tensor of " + shapeText(shape) +
                  " elements passes the limit of 2^36"),
             false;
  }
  return true;
}

SmallVector<Value> Emitter::ops(StringRef name, ValueRange operands,
                                ArrayRef<NamedAttribute> attributes) {
  if (llvm::any_of(operands, [](Value v) { return !v; })) {
    fail("an operand is missing");
    return SmallVector<Value>(3);
  }
  if (++operations > maxOperations) {
    fail("the model needs more than " + Twine(maxOperations) + " operations");
    return SmallVector<Value>(3);
  }
  OperationState state(loc, ("graph." + name).str(), operands, {}, attributes);
  if (!infer(state) || !checkSizes(state.types))
    return SmallVector<Value>(3);
  Operation *op = builder.create(state);
  SmallVector<Value> results;
  if (foldSplat(op, results) || fold(op, results))
    op->erase();
  else
    results.assign(op->result_begin(), op->result_end());
  return results;
}

Value Emitter::op(StringRef name, ValueRange operands,
                  ArrayRef<NamedAttribute> attributes) {
  return ops(name, operands, attributes)[0];
}

NamedAttribute Emitter::i64(StringRef name, int64_t value) {
  return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
}
NamedAttribute Emitter::i64s(StringRef name, ArrayRef<int64_t> values) {
  return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(values));
}
NamedAttribute Emitter::f64(StringRef name, double value) {
  return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
}
NamedAttribute Emitter::str(StringRef name, StringRef value) {
  return builder.getNamedAttr(name, builder.getStringAttr(value));
}
NamedAttribute Emitter::flag(StringRef name) {
  return builder.getNamedAttr(name, builder.getUnitAttr());
}

void Emitter::roundTo16(Value x, SmallVectorImpl<NamedAttribute> &attributes) {
  Type type = elementOf(x);
  if (type.isF16() || type.isBF16())
    attributes.push_back(builder.getNamedAttr("round_to", TypeAttr::get(type)));
}

Value Emitter::constant(ElementsAttr value) {
  return builder.create<graph::ConstantOp>(loc, value).getResult();
}
Value Emitter::constant(const graph::HostTensor &tensor) {
  return constant(toAttribute(tensor));
}
Value Emitter::ints(ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, i64Type());
  return constant(ElementsAttr(DenseElementsAttr::get(type, values)));
}
Value Emitter::splat(ArrayRef<int64_t> shape, Type element, double value) {
  auto type = RankedTensorType::get(shape, element);
  if (!checkSizes(type))
    return {};
  Attribute scalar;
  if (isa<FloatType>(element))
    scalar = builder.getFloatAttr(element, value);
  else
    scalar = builder.getIntegerAttr(element, toInteger(value));
  return constant(ElementsAttr(DenseElementsAttr::get(type, scalar)));
}
Value Emitter::like(Value x, double value) {
  return x ? splat(shapeOf(x), elementOf(x), value) : Value();
}
Value Emitter::iota(ArrayRef<int64_t> shape, int64_t axis) {
  return op("iota", {}, {i64s("shape", shape), i64("axis", axis)});
}

Value Emitter::bin(StringRef name, Value a, Value b,
                   ArrayRef<NamedAttribute> attributes) {
  if (!a || !b)
    return {};
  if (elementOf(a) != elementOf(b))
    return fail("operands are of types " + typeText(elementOf(a)) + " and " +
                typeText(elementOf(b)));
  auto shape = broadcastShape(shapeOf(a), shapeOf(b));
  if (!shape)
    return fail("shapes " + shapeText(shapeOf(a)) + " and " + shapeText(shapeOf(b)) +
                " do not broadcast");
  return op(name, {broadcast(a, *shape), broadcast(b, *shape)}, attributes);
}
Value Emitter::cmp(Value a, Value b, StringRef predicate) {
  return bin("compare", a, b, {str("predicate", predicate)});
}
Value Emitter::select(Value condition, Value a, Value b) {
  if (!condition || !a || !b)
    return {};
  auto values = broadcastShape(shapeOf(a), shapeOf(b));
  auto shape = values ? broadcastShape(*values, shapeOf(condition)) : std::nullopt;
  if (!shape)
    return fail("shapes " + shapeText(shapeOf(condition)) + ", " + shapeText(shapeOf(a)) +
                " and " + shapeText(shapeOf(b)) + " do not broadcast");
  if (elementOf(a) != elementOf(b))
    return fail("operands are of types " + typeText(elementOf(a)) + " and " +
                typeText(elementOf(b)));
  return op("select",
            {broadcast(condition, *shape), broadcast(a, *shape), broadcast(b, *shape)});
}
Value Emitter::cast(Value x, Type element) {
  if (!x || elementOf(x) == element)
    return x;
  return op("cast", {x}, {builder.getNamedAttr("element_type", TypeAttr::get(element))});
}

std::optional<graph::HostTensor> Emitter::host(Value x) const {
  auto constant = x ? x.getDefiningOp<graph::ConstantOp>() : graph::ConstantOp();
  if (!constant || elementCount(shapeOf(x)) > foldLarge)
    return std::nullopt;
  auto tensor = graph::HostTensor::fromAttribute(constant.getValue());
  if (failed(tensor))
    return std::nullopt;
  return std::move(*tensor);
}

int64_t toInteger(double value) {
  if (std::isnan(value))
    return 0;
  return value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : int64_t(value);
}
int64_t elementCount(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    if (dim == 0)
      return 0;
  for (int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count))
      return INT64_MAX;
  return count;
}
std::string shapeText(ArrayRef<int64_t> shape) {
  std::string text;
  for (int64_t dim : shape)
    text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text.empty() ? "scalar" : text;
}
std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}
std::optional<Ints> broadcastShape(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  Ints shape(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1)
      return std::nullopt;
    shape[shape.size() - 1 - i] = da == 1 ? db : da;
  }
  return shape;
}
Ints range(int64_t n) {
  Ints values(std::max<int64_t>(n, 0));
  for (int64_t i = 0; i < n; ++i)
    values[i] = i;
  return values;
}

} // namespace sluice::frontend
