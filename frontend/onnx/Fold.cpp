// Constant folding at import: an operation whose operands are all constants is run on the
// host by the interpreter's own `evaluate`. Large results stay operations (a model must
// not grow by folding), splats stay splats.
#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/Limits.h"

namespace sluice::frontend {

using namespace mlir;
using graph::HostTensor;

namespace {

template <typename T> SmallVector<T, 0> narrow(const std::vector<int64_t> &values) {
  SmallVector<T, 0> out;
  out.reserve(values.size());
  for (int64_t value : values)
    out.push_back(static_cast<T>(value));
  return out;
}

ElementsAttr realAttribute(const HostTensor &tensor, RankedTensorType type) {
  if (tensor.elementType.isF64())
    return DenseElementsAttr::get(type, ArrayRef<double>(tensor.reals));
  if (tensor.elementType.isF32()) {
    SmallVector<float, 0> values(tensor.reals.begin(), tensor.reals.end());
    return DenseElementsAttr::get(type, ArrayRef<float>(values));
  }
  const auto &semantics = cast<FloatType>(tensor.elementType).getFloatSemantics();
  SmallVector<APFloat, 0> values;
  for (double real : tensor.reals) {
    APFloat value(real);
    bool lost;
    value.convert(semantics, APFloat::rmNearestTiesToEven, &lost);
    values.push_back(value);
  }
  return DenseElementsAttr::get(type, values);
}

ElementsAttr integerAttribute(const HostTensor &tensor, RankedTensorType type) {
  auto &values = tensor.integers;
  switch (tensor.elementType.getIntOrFloatBitWidth()) {
  case 1: {
    SmallVector<bool, 0> bits;
    for (int64_t value : values)
      bits.push_back(value != 0);
    return DenseElementsAttr::get(type, ArrayRef<bool>(bits));
  }
  case 8:
    return DenseElementsAttr::get(type, ArrayRef<int8_t>(narrow<int8_t>(values)));
  case 16:
    return DenseElementsAttr::get(type, ArrayRef<int16_t>(narrow<int16_t>(values)));
  case 32:
    return DenseElementsAttr::get(type, ArrayRef<int32_t>(narrow<int32_t>(values)));
  default:
    return DenseElementsAttr::get(type, ArrayRef<int64_t>(values));
  }
}

HostTensor splatElement(DenseElementsAttr attribute) {
  HostTensor tensor;
  tensor.elementType = attribute.getElementType();
  tensor.shape = {1};
  if (isa<FloatType>(tensor.elementType)) {
    APFloat value = attribute.getSplatValue<APFloat>();
    bool lost;
    value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
    tensor.reals = {value.convertToDouble()};
  } else {
    APInt value = attribute.getSplatValue<APInt>();
    tensor.integers = {value.getBitWidth() == 1 ? int64_t(value.getZExtValue())
                                                : value.getSExtValue()};
  }
  return tensor;
}

DenseElementsAttr splatOf(Value value) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  return dense && dense.isSplat() ? dense : nullptr;
}

graph::Precision precisionOf(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (cast<RankedTensorType>(type).getElementType().isF64())
      return graph::Precision::Double;
  for (Type type : op->getResultTypes())
    if (cast<RankedTensorType>(type).getElementType().isF64())
      return graph::Precision::Double;
  return graph::Precision::Single;
}

/// Operations that move elements without looking at them keep a splat a splat.
bool movesElements(Operation *op) {
  return isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp, graph::SliceOp,
             graph::ConcatOp>(op);
}

bool evaluateInto(Operation *op, ArrayRef<HostTensor> operands,
                  MutableArrayRef<HostTensor> results) {
  SmallVector<const HostTensor *> pointers;
  for (const HostTensor &operand : operands)
    pointers.push_back(&operand);
  graph::Evaluation evaluation(op, pointers, results, precisionOf(op));
  return succeeded(cast<graph::Evaluable>(op).evaluate(evaluation));
}

} // namespace

ElementsAttr toAttribute(const HostTensor &tensor) {
  auto type = RankedTensorType::get(tensor.shape, tensor.elementType);
  return tensor.isReal() ? realAttribute(tensor, type) : integerAttribute(tensor, type);
}

bool Emitter::foldSplat(Operation *op, SmallVectorImpl<Value> &results) {
  bool elementwise = isa<graph::Elementwise>(op);
  if ((!elementwise && !movesElements(op)) || op->getNumOperands() == 0)
    return false;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  SmallVector<HostTensor> operands;
  for (Value operand : op->getOperands()) {
    DenseElementsAttr splat = splatOf(operand);
    if (!splat || splat.getNumElements() == 0)
      return false;
    operands.push_back(splatElement(splat));
  }
  HostTensor result = operands[0];
  if (elementwise) {
    result = HostTensor::zeros(RankedTensorType::get({1}, type.getElementType()));
    if (!evaluateInto(op, operands, result))
      return false;
  } else {
    for (HostTensor &operand : operands)
      if (operand.reals != result.reals || operand.integers != result.integers)
        return false;
  }
  ElementsAttr one = toAttribute(result);
  results.push_back(
      constant(ElementsAttr(cast<DenseElementsAttr>(one).resizeSplat(type))));
  return true;
}

bool Emitter::fold(Operation *op, SmallVectorImpl<Value> &results) {
  if (!isa<graph::Evaluable>(op))
    return false;
  int64_t in = 0, out = 0;
  for (Value operand : op->getOperands()) {
    if (!operand.getDefiningOp<graph::ConstantOp>())
      return false;
    in = std::max(in, elementCount(shapeOf(operand)));
  }
  for (Value result : op->getResults())
    out = std::max(out, elementCount(shapeOf(result)));
  bool repeats = isa<graph::BroadcastOp>(op) && out > in && out > foldRepeated;
  bool small = !repeats && (out <= foldSmall || (out <= foldLarge && out <= in));
  if (!small || in > foldLarge || foldedElements + in + out > foldTotal)
    return false;
  if (auto costed = dyn_cast<graph::Costed>(op))
    if (costed.flops() > foldFlops)
      return false;
  SmallVector<HostTensor> operands, values;
  for (Value operand : op->getOperands()) {
    auto tensor = host(operand);
    if (!tensor)
      return false;
    operands.push_back(std::move(*tensor));
  }
  for (Type type : op->getResultTypes())
    values.push_back(HostTensor::zeros(cast<RankedTensorType>(type)));
  if (!evaluateInto(op, operands, values))
    return false;
  foldedElements += in + out;
  for (HostTensor &value : values)
    results.push_back(constant(value));
  return true;
}

std::optional<HostTensor> Emitter::known(Value x) {
  SmallVector<Operation *> chain;
  while (x && !x.getDefiningOp<graph::ConstantOp>()) {
    Operation *op = x.getDefiningOp();
    if (!op || !isa<graph::Evaluable>(op) || op->getNumOperands() != 1 ||
        op->getNumResults() != 1 || chain.size() >= 16)
      return std::nullopt;
    foldedElements += elementCount(shapeOf(x));
    if (elementCount(shapeOf(x)) > foldLarge || foldedElements > foldTotal)
      return std::nullopt;
    chain.push_back(op);
    x = op->getOperand(0);
  }
  std::optional<HostTensor> tensor = host(x);
  for (Operation *op : llvm::reverse(chain)) {
    if (!tensor)
      return std::nullopt;
    HostTensor result =
        HostTensor::zeros(cast<RankedTensorType>(op->getResult(0).getType()));
    if (!evaluateInto(op, *tensor, result))
      return std::nullopt;
    tensor = std::move(result);
  }
  return tensor;
}

} // namespace sluice::frontend
