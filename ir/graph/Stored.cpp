// Quantize and dequantize: their types, their reference, and what they are made of.
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/SavedMark.h"
#include "ir/graph/Shapes.h"
#include "kernels/StoredFormats.h"

#include <bit>
#include <cstring>

using namespace mlir;
using namespace sluice;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Stored.cpp.inc"

namespace {
using Place = std::optional<Location>;

std::span<const int64_t> spanOf(ArrayRef<int64_t> shape) {
  return {shape.data(), shape.size()};
}

StringRef elementOf(StoredFormat format) {
  if (format == StoredFormat::e5m2)
    return "e5m2";
  return traitsOf(format).bits == 4 ? "e2m1" : "e4m3";
}

double largestOf(StoredFormat format) {
  if (format == StoredFormat::e5m2)
    return 57344;
  return traitsOf(format).bits == 4 ? 6 : 448;
}

/// Types of the codes and the scales of a tensor; an error where blocks are not whole.
LogicalResult storedTypes(StringRef op, Place loc, StringRef name,
                          ArrayRef<int64_t> shape, MLIRContext *context,
                          SmallVectorImpl<Type> &types) {
  Builder b(context);
  std::optional<StoredFormat> format = storedFormat(name.str());
  if (!format || *format == StoredFormat::fp32)
    return emitOptionalError(loc, "format of '", op, "' is '", name,
                             "', expected one of ", storedFormatNames(),
                             " that is not fp32");
  if (!isWhole(*format, spanOf(shape)))
    return emitOptionalError(loc, "'", op, "' stores ", listText(shape), " as ", name,
                             ", expected whole blocks");
  const FormatTraits &traits = traitsOf(*format);
  if (traits.bits == 16)
    types.push_back(RankedTensorType::get(
        shape, *format == StoredFormat::bf16 ? Type(b.getBF16Type()) : b.getF16Type()));
  else if (traits.bits == 8)
    types.push_back(RankedTensorType::get(shape, b.getI8Type()));
  else
    types.push_back(RankedTensorType::get({product(shape) / 2}, b.getI8Type()));
  int64_t blocks = blocksOf(*format, spanOf(shape)).count();
  if (traits.scale != ScaleKind::none)
    types.push_back(RankedTensorType::get({blocks}, traits.scale == ScaleKind::real
                                                        ? Type(b.getF32Type())
                                                        : b.getI8Type()));
  if (traits.scale == ScaleKind::twoLevel)
    types.push_back(RankedTensorType::get({1}, b.getF32Type()));
  return success();
}

/// A tensor as blocks: [blocks, elements], or tiles [down, rows, across, columns].
struct BlockView {
  SmallVector<int64_t> shape, scaleShape, axes;

  BlockView(StoredFormat format, ArrayRef<int64_t> tensor) {
    BlockGrid grid = blocksOf(format, spanOf(tensor));
    if (grid.blockRows == 1 || grid.across() == 1) { // of consecutive elements
      shape = {grid.count(), grid.blockRows * grid.blockColumns};
      scaleShape = {grid.count(), 1};
      axes = {1};
      return;
    }
    shape = {grid.down(), grid.blockRows, grid.across(), grid.blockColumns};
    scaleShape = {grid.down(), 1, grid.across(), 1};
    axes = {1, 3};
  }
};

/// Largest magnitude over a number; 0 where that is below 2^-126.
Value linearScale(GraphBuilder &b, Value amax, double largest) {
  Value scale = b.div(amax, b.splatLike(amax, largest));
  Value isTiny = b.compare(scale, "lt", b.splatLike(scale, 0x1p-126));
  return b.select(isTiny, b.splatLike(scale, 0), scale);
}

/// f32 scales of the blocks, in their shape.
Value effectiveScales(GraphBuilder &b, StoredFormat format, ValueRange scales,
                      ArrayRef<int64_t> shape) {
  Value own = b.reshape(scales[0], shape);
  switch (traitsOf(format).scale) {
  case ScaleKind::none:
  case ScaleKind::real:
    break;
  case ScaleKind::power:
    return b.make<PowerValueOp>(own);
  case ScaleKind::twoLevel: {
    SmallVector<int64_t> ones(shape.size(), 1);
    Value global = b.broadcast(b.reshape(scales[1], ones), shape);
    return b.make<MiniDecodeOp>(own, global, "e4m3");
  }
  }
  return own;
}

/// Scales of x in blocks, as they are stored.
SmallVector<Value> buildScales(GraphBuilder &b, StoredFormat format, Value x,
                               const BlockView &view) {
  Value amax = b.reduce(b.make<AbsOp>(x), "max", view.axes, /*keep=*/true);
  int64_t blocks = product(view.scaleShape);
  ScaleKind kind = traitsOf(format).scale;
  if (kind == ScaleKind::real)
    return {b.reshape(linearScale(b, amax, largestOf(format)), {blocks})};
  if (kind == ScaleKind::power)
    return {b.reshape(b.make<PowerCodeOp>(amax, elementOf(format)), {blocks})};
  amax = b.reshape(amax, {1, blocks});
  Value most = b.reduce(amax, "max", {1}, /*keep=*/true);
  Value global = linearScale(b, most, 448 * largestOf(format));
  Value parts = b.div(amax, b.splatLike(amax, largestOf(format)));
  Value codes =
      b.make<MiniEncodeOp>(parts, b.broadcastLike(global, parts), Value(), "e4m3");
  return {b.reshape(codes, {blocks}), b.reshape(global, {1})};
}

Value slice(GraphBuilder &b, Value x, int64_t start, int64_t size) {
  return b.make<SliceOp>(x, ArrayRef<int64_t>{start}, ArrayRef<int64_t>{size},
                         ArrayRef<int64_t>{1});
}

std::vector<float> floatsOf(const HostTensor &tensor) {
  return {tensor.reals.begin(), tensor.reals.end()};
}

float floatAt(const std::vector<uint8_t> &bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes.data() + i * 4, 4);
  return value;
}

/// Bytes as i8, or f32 values, or 16-bit values.
void putBytes(const std::vector<uint8_t> &bytes, HostTensor &to) {
  for (size_t i = 0; i < to.integers.size(); ++i)
    to.integers[i] = static_cast<int8_t>(bytes[i]);
  bool isWide = to.elementType.isF32();
  for (size_t i = 0; i < to.reals.size(); ++i) {
    if (isWide) {
      to.reals[i] = floatAt(bytes, i);
      continue;
    }
    uint16_t word;
    std::memcpy(&word, bytes.data() + i * 2, 2);
    to.reals[i] = to.elementType.isBF16() ? std::bit_cast<float>(uint32_t{word} << 16)
                                          : float(std::bit_cast<_Float16>(word));
  }
}

std::vector<uint8_t> bytesOf(const HostTensor &from) {
  std::vector<uint8_t> bytes;
  for (int64_t value : from.integers)
    bytes.push_back(static_cast<uint8_t>(value));
  for (double value : from.reals) {
    auto real = static_cast<float>(value);
    uint32_t word = std::bit_cast<uint32_t>(real), size = 4;
    if (from.elementType.isBF16())
      word >>= 16, size = 2;
    else if (from.elementType.isF16())
      word = std::bit_cast<uint16_t>(static_cast<_Float16>(real)), size = 2;
    for (uint32_t i = 0; i < size; ++i)
      bytes.push_back(static_cast<uint8_t>(word >> 8 * i));
  }
  return bytes;
}

} // namespace

// --- quantize

LogicalResult QuantizeOp::inferReturnTypes(MLIRContext *context, Place loc,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  ValueRange inputs = adaptor.getInputs();
  size_t expected = 1 + adaptor.getGiven() + adaptor.getStochastic();
  if (inputs.size() != expected)
    return emitOptionalError(loc, "'graph.quantize' has ", inputs.size(),
                             " operands, expected ", expected);
  RankedTensorType type = operandType("graph.quantize", loc, inputs, 0);
  if (!type)
    return failure();
  return storedTypes("graph.quantize", loc, adaptor.getFormat(), type.getShape(), context,
                     types);
}

LogicalResult QuantizeOp::evaluate(Evaluation &eval) {
  StoredFormat format = *storedFormat(getFormat().str());
  const HostTensor &x = eval.operand(0);
  std::vector<float> values = floatsOf(x), noise;
  if (getStochastic())
    noise = floatsOf(eval.operand(getInputs().size() - 1));
  std::span<const int64_t> shape(x.shape);
  EncodedTensor encoded = scalesOf(format, shape, values);
  if (getGiven()) {
    auto scale = static_cast<float>(eval.operand(1).reals[0]);
    std::memcpy(encoded.scales.data(), &scale, 4);
  }
  encodeUnder(format, shape, values, encoded, noise);
  putBytes(encoded.codes, eval.result(0));
  if (getNumResults() > 1)
    putBytes(encoded.scales, eval.result(1));
  if (getNumResults() > 2)
    eval.result(2).reals[0] = encoded.global;
  return success();
}

namespace {

/// Parts of a decomposition say what the whole does.
class SavedMark {
public:
  explicit SavedMark(Operation *op) : op(op), previous(op->getPrevNode()) {}
  ~SavedMark() {
    Attribute mark = op->getAttr(savedAttr);
    Operation *part = previous ? previous->getNextNode() : &op->getBlock()->front();
    for (; mark && part != op; part = part->getNextNode())
      if (!isa<ConstantOp>(part))
        part->setAttr(savedAttr, mark);
  }

private:
  Operation *op, *previous;
};

} // namespace

SmallVector<Value> QuantizeOp::decompose(OpBuilder &builder) {
  SavedMark mark(*this);
  GraphBuilder b(getLoc(), builder);
  StoredFormat format = *storedFormat(getFormat().str());
  const FormatTraits &traits = traitsOf(format);
  ArrayRef<int64_t> shape = tensorType(getX()).getShape();
  Value noise = getNoise();
  if (traits.bits == 16) {
    if (!noise)
      return {b.cast(getX(), tensorType(getResult(0)).getElementType())};
    return {format == StoredFormat::bf16 ? b.make<RoundStochasticOp>(getX(), noise)
                                         : b.make<RoundHalfOp>(getX(), noise)};
  }
  BlockView view(format, shape);
  Value x = b.reshape(getX(), view.shape);
  SmallVector<Value> scales;
  if (getGiven())
    scales = {b.reshape(getScale(), {1})};
  else
    scales = buildScales(b, format, x, view);
  Value each = effectiveScales(b, format, scales, view.scaleShape);
  Value codes = b.make<MiniEncodeOp>(x, b.broadcast(each, view.shape),
                                     noise ? b.reshape(noise, view.shape) : Value(),
                                     elementOf(format));
  if (traits.bits == 4) {
    int64_t half = product(shape) / 2;
    codes = b.reshape(codes, {2 * half});
    codes = b.make<PackNibblesOp>(slice(b, codes, 0, half), slice(b, codes, half, half));
  }
  SmallVector<Value> stored = {b.reshape(codes, tensorType(getResult(0)).getShape())};
  llvm::append_range(stored, scales);
  return stored;
}

// --- dequantize

LogicalResult DequantizeOp::inferReturnTypes(MLIRContext *context, Place loc,
                                             Adaptor adaptor,
                                             SmallVectorImpl<Type> &types) {
  SmallVector<Type> expected;
  if (failed(storedTypes("graph.dequantize", loc, adaptor.getFormat(), adaptor.getShape(),
                         context, expected)))
    return failure();
  if (TypeRange(adaptor.getStored()) != TypeRange(expected))
    return emitOptionalError(loc, "'graph.dequantize' of ", adaptor.getFormat(),
                             " has other operands than 'graph.quantize' gives for ",
                             listText(adaptor.getShape()));
  types.push_back(RankedTensorType::get(adaptor.getShape(), Float32Type::get(context)));
  return success();
}

LogicalResult DequantizeOp::evaluate(Evaluation &eval) {
  StoredFormat format = *storedFormat(getFormat().str());
  EncodedTensor encoded;
  encoded.codes = bytesOf(eval.operand(0));
  if (getStored().size() > 1)
    encoded.scales = bytesOf(eval.operand(1));
  if (getStored().size() > 2)
    encoded.global = static_cast<float>(eval.operand(2).reals[0]);
  HostTensor &y = eval.result(0);
  std::vector<float> values(y.reals.size());
  decodeTensor(format, spanOf(getShape()), encoded, values);
  y.reals.assign(values.begin(), values.end());
  return success();
}

SmallVector<Value> DequantizeOp::decompose(OpBuilder &builder) {
  SavedMark mark(*this);
  GraphBuilder b(getLoc(), builder);
  StoredFormat format = *storedFormat(getFormat().str());
  Value codes = getStored()[0];
  if (traitsOf(format).bits == 16) {
    auto cast = b.create<CastOp>(codes, b.getF32Type());
    if (getSite())
      cast->setAttr(siteAttr, getSiteAttr());
    return {cast};
  }
  if (traitsOf(format).bits == 4) {
    Value halves[] = {b.make<UnpackNibbleOp>(codes, false),
                      b.make<UnpackNibbleOp>(codes, true)};
    codes = b.make<ConcatOp>(ValueRange(halves), int64_t{0});
    // Else codes of a byte each would be kept from one reader to the next.
    for (Operation *part :
         {halves[0].getDefiningOp(), halves[1].getDefiningOp(), codes.getDefiningOp()})
      if (getSite())
        part->setAttr(siteAttr, getSiteAttr());
  }
  BlockView view(format, getShape());
  Value each = effectiveScales(b, format, getStored().drop_front(), view.scaleShape);
  Value y =
      b.make<MiniDecodeOp>(b.reshape(codes, view.shape), b.broadcast(each, view.shape),
                           elementOf(format), getSite());
  y.getDefiningOp()->setAttr(decodedFormatAttr, getFormatAttr());
  y.getDefiningOp()->setAttr(decodedShapeAttr, getShapeAttr());
  return {b.reshape(y, getShape())};
}
