#include "passes/StoredState.h"

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "passes/DelayedScale.h"

#include "mlir/IR/DialectResourceBlobManager.h"

#include <cmath>
#include <cstring>

using namespace mlir;

namespace sluice {
namespace {

std::string scaleName(graph::ParameterOp parameter, StringRef part) {
  return ("scale/" + modelName(parameter.getSymName()) + "/" + part).str();
}

/// The initial value of a declaration, from its bytes.
void setBytes(graph::ParameterOp declared, ArrayRef<uint8_t> content) {
  constexpr size_t inlined = 512;
  RankedTensorType type = declared.getTensorType();
  ArrayRef<char> bytes(reinterpret_cast<const char *>(content.data()), content.size());
  if (bytes.size() <= inlined)
    declared.setInitAttr(DenseElementsAttr::getFromRawBuffer(type, bytes));
  else
    declared.setInitAttr(DenseResourceElementsAttr::get(
        type, modelName(declared.getSymName()),
        HeapAsmResourceBlob::allocateAndCopyWithAlign(bytes, alignof(uint32_t))));
}

/// Every element the same, from the bytes of one.
void setFill(graph::ParameterOp declared, const uint8_t *element) {
  Builder b(declared.getContext());
  Type type = declared.getTensorType().getElementType();
  double fill = static_cast<int8_t>(*element);
  if (type.isF32()) {
    float value;
    std::memcpy(&value, element, sizeof value);
    fill = value;
  }
  declared.setFillAttr(b.getF64FloatAttr(fill));
}

std::vector<float> valuesOf(const graph::HostTensor &tensor) {
  return {tensor.reals.begin(), tensor.reals.end()};
}

/// The declarations of a parameter's scales; those that are not there are null.
struct Scales {
  graph::ParameterOp blocks, tensor;
  SmallVector<graph::ParameterOp> all() const {
    SmallVector<graph::ParameterOp> present;
    for (graph::ParameterOp scale : {blocks, tensor})
      if (scale)
        present.push_back(scale);
    return present;
  }
};

Scales scalesOf(graph::ParameterOp parameter, StateSymbols &state) {
  return {state.lookup(scaleName(parameter, "blocks")),
          state.lookup(scaleName(parameter, "tensor"))};
}

Scales declareScales(graph::ParameterOp parameter, StoredFormat format,
                     ArrayRef<int64_t> shape, StateSymbols &state) {
  Builder b(parameter.getContext());
  ScaleKind kind = traitsOf(format).scale;
  if (kind == ScaleKind::none)
    return {};
  StringRef group = parameter.getGroup().value_or("");
  int64_t blocks = blocksOf(format, {shape.data(), shape.size()}).count();
  Type element = kind == ScaleKind::real ? Type(b.getF32Type()) : b.getI8Type();
  Scales scales;
  scales.blocks =
      state.declare(scaleName(parameter, "blocks"),
                    RankedTensorType::get({blocks}, element), "control", group);
  if (kind == ScaleKind::twoLevel)
    scales.tensor =
        state.declare(scaleName(parameter, "tensor"),
                      RankedTensorType::get({1}, b.getF32Type()), "control", group);
  return scales;
}

/// Equal values have equal codes and scales: one block says it all.
void setUniform(graph::ParameterOp parameter, StoredFormat format, const Scales &scales,
                float value) {
  const int64_t shape[] = {std::max<int64_t>(traitsOf(format).blockColumns, 2)};
  std::vector<float> values(shape[0], value);
  EncodedTensor encoded = encodeTensor(format, shape, values);
  parameter.removeInitAttr();
  if (traitsOf(format).bits < 16)
    setFill(parameter, encoded.codes.data());
  if (scales.blocks)
    setFill(scales.blocks, encoded.scales.data());
  if (scales.tensor)
    setFill(scales.tensor, reinterpret_cast<const uint8_t *>(&encoded.global));
}

RankedTensorType codeType(StoredFormat format, ArrayRef<int64_t> shape, Builder b) {
  if (format == StoredFormat::bf16)
    return RankedTensorType::get(shape, b.getBF16Type());
  if (format == StoredFormat::fp16)
    return RankedTensorType::get(shape, b.getF16Type());
  if (traitsOf(format).bits == 8)
    return RankedTensorType::get(shape, b.getI8Type());
  return RankedTensorType::get({codeBytes(format, {shape.data(), shape.size()})},
                               b.getI8Type());
}

} // namespace

std::optional<StoredFormat> storedFormatOf(graph::ParameterOp parameter) {
  auto name = parameter->getAttrOfType<StringAttr>(storedFormatAttr);
  return name ? storedFormat(name.getValue().str()) : std::nullopt;
}

RankedTensorType valueTypeOf(graph::ParameterOp parameter) {
  auto shape = parameter->getAttrOfType<DenseI64ArrayAttr>(valueShapeAttr);
  if (!shape)
    return parameter.getTensorType();
  return RankedTensorType::get(shape.asArrayRef(),
                               Float32Type::get(parameter.getContext()));
}

/// A history that knows the initial values.
static void declareHistory(graph::ParameterOp parameter, ArrayRef<float> values,
                           StateSymbols &state) {
  double largest = 0;
  for (float value : values)
    largest = std::max<double>(largest, std::fabs(value));
  DelayedScale(modelName(parameter.getSymName()).str(), largest,
               parameter.getGroup().value_or(""), state, parameter.getContext());
}

void storeAs(graph::ParameterOp parameter, StoredFormat format, bool keepsMaster,
             bool isDelayed, StateSymbols &state) {
  RankedTensorType wide = parameter.getTensorType();
  ArrayRef<int64_t> shape = wide.getShape();
  Builder b(parameter.getContext());
  ElementsAttr init = parameter.getInitAttr();
  if (keepsMaster) {
    std::string name = ("master/" + modelName(parameter.getSymName())).str();
    graph::ParameterOp master =
        state.declare(name, wide, "master", parameter.getGroup().value_or(""));
    master.setFillAttr(parameter.getFillAttr());
    if (init)
      master.setInitAttr(init);
  }
  Scales scales = declareScales(parameter, format, shape, state);
  parameter->setAttr(storedFormatAttr, b.getStringAttr(traitsOf(format).name));
  parameter->setAttr(valueShapeAttr, b.getDenseI64ArrayAttr(shape));
  FailureOr<graph::HostTensor> values = failure();
  if (init)
    values = graph::HostTensor::fromAttribute(init);
  parameter.removeInitAttr();
  parameter.setType(codeType(format, shape, b));
  auto fill = static_cast<float>(parameter.getFill().convertToDouble());
  std::vector<float> floats = {fill};
  if (succeeded(values))
    floats = valuesOf(*values);
  if (isDelayed)
    declareHistory(parameter, floats, state);
  if (failed(values))
    return setUniform(parameter, format, scales, fill);
  EncodedTensor encoded = encodeTensor(format, {shape.data(), shape.size()}, floats);
  setBytes(parameter, encoded.codes);
  if (scales.blocks)
    setBytes(scales.blocks, encoded.scales);
  if (scales.tensor)
    setFill(scales.tensor, reinterpret_cast<const uint8_t *>(&encoded.global));
}

SmallVector<Value> readStored(graph::ParameterOp parameter, StateSymbols &state,
                              EntryReads &reads) {
  SmallVector<Value> stored = {reads.read(parameter)};
  for (graph::ParameterOp scale : scalesOf(parameter, state).all())
    stored.push_back(reads.read(scale));
  return stored;
}

Value decodeStored(graph::ParameterOp parameter, ValueRange stored, int64_t site,
                   OpBuilder &builder) {
  graph::GraphBuilder b(parameter.getLoc(), builder);
  return b.make<graph::DequantizeOp>(
      stored, parameter->getAttrOfType<StringAttr>(storedFormatAttr).getValue(),
      valueTypeOf(parameter).getShape(), site);
}

void writeStored(graph::ParameterOp parameter, Value value, Value noise, Value moves,
                 StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  graph::GraphBuilder b(parameter.getLoc(), builder);
  SmallVector<Value> inputs = {value};
  graph::ParameterOp history =
      DelayedScale::historyOf(modelName(parameter.getSymName()).str(), state);
  if (history) {
    DelayedScale scale(history, state);
    inputs.push_back(scale.value(*storedFormatOf(parameter), reads, builder));
    scale.observe(value, /*isWindow=*/false, moves, reads, builder);
  }
  if (noise)
    inputs.push_back(noise);
  auto stored = b.create<graph::QuantizeOp>(
      inputs, parameter->getAttrOfType<StringAttr>(storedFormatAttr).getValue(),
      /*given=*/bool(history), /*stochastic=*/noise != nullptr);
  SmallVector<graph::ParameterOp> targets = {parameter};
  llvm::append_range(targets, scalesOf(parameter, state).all());
  for (auto [target, part] : llvm::zip_equal(targets, stored->getResults())) {
    Value kept = b.select(b.broadcastLike(moves, part), part, reads.read(target));
    b.create<graph::WriteOp>(target.getSymName(), kept);
  }
}

} // namespace sluice
