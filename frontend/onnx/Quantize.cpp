// Linear quantisation and the operators on quantised tensors, computed in wider types.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/NarrowFloat.h"
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Window.h"

namespace sluice::frontend {

namespace {

struct Range {
  Type type; // of the carrier
  double low, high;
  int32_t onnxType;
};

/// The range of a quantised tensor by its ONNX type, uint8 where that is not known.
/// Unsigned 8- and 16-bit values are carried as i32.
std::optional<Range> rangeOf(Node &n, int64_t onnxType) {
  auto type = static_cast<int32_t>(onnxType ? onnxType : onnx::TensorProto::UINT8);
  Type stored = elementType(n.e.context(), type);
  switch (type) {
  case onnx::TensorProto::UINT8:
    return Range{stored, 0, 255, type};
  case onnx::TensorProto::INT8:
    return Range{stored, -128, 127, type};
  case onnx::TensorProto::UINT16:
    return Range{stored, 0, 65535, type};
  case onnx::TensorProto::INT16:
    return Range{stored, -32768, 32767, type};
  case 21: // uint4
    return Range{stored, 0, 15, type};
  case 22: // int4
    return Range{stored, -8, 7, type};
  default:
    n.e.fail("quantisation to " + onnxTypeName(type) +
             " is not supported, only to integers of 4, 8 and 16 bits, float8 and "
             "float4e2m1");
    return std::nullopt;
  }
}

/// A scale or zero point in the shape of x: one for all, one per element of `axis`, or
/// one per block along it.
Value spread(Node &n, Value v, Value x, int64_t axis, int64_t block) {
  Emitter &e = n.e;
  if (!v || !x)
    return {};
  if (elementCount(shapeOf(v)) == 1)
    return e.broadcast(e.reshape(v, {}), shapeOf(x));
  auto normal = n.axis(axis, rankOf(x));
  if (!normal)
    return {};
  if (rankOf(v) == 1)
    return e.along(v, shapeOf(x), *normal);
  if (block <= 0 || block > int64_t(1) << 31 || rankOf(v) != rankOf(x))
    return e.fail("a scale has shape " + shapeText(shapeOf(v)) + ", which does not fit");
  Ints split(shapeOf(v)), wide;
  split.insert(split.begin() + *normal + 1, 1);
  wide = split;
  wide[*normal + 1] = block;
  Ints merged(shapeOf(v));
  merged[*normal] *= block;
  Value repeated = e.reshape(e.broadcast(e.reshape(v, split), wide), merged);
  return e.sliceAxis(repeated, *normal, 0, dimOf(x, *normal));
}

/// The ONNX type of a zero point; by its carrier where nothing says more.
int32_t quantizedType(Node &n, int operand) {
  if (int32_t type = n.typeOf(operand))
    return type;
  Value zero = n.in(operand);
  if (!zero || elementOf(zero).isInteger(32))
    return onnx::TensorProto::UINT8;
  return elementOf(zero).isInteger(8) ? onnx::TensorProto::INT8
                                      : onnx::TensorProto::INT16;
}

/// Rounding takes the gradient of the identity, saturation that of a clamp. The integers
/// themselves have no gradient: what dequantises them reads the reals they were made of.
Value quantize(Node &n, Value x, Value scale, Value zero, const Range &range) {
  Emitter &e = n.e;
  Value q = e.op("round", {e.div(x, scale)}, {e.flag("straight_through")});
  if (zero)
    q = e.add(q, e.cast(zero, elementOf(x)));
  Value limited = clamp(e, q, range.low, range.high);
  Value y = e.cast(limited, range.type);
  if (y && !y.getDefiningOp<graph::ConstantOp>())
    n.importer.unrounded[y] = limited;
  return y;
}
/// Quantised numbers as reals.
Value reals(Node &n, Value q, Type type) {
  Value source = n.importer.unrounded.lookup(q);
  return n.e.cast(source ? source : q, type);
}

LogicalResult importQuantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  int64_t type = n.i("output_dtype", 0);
  int64_t to = n.has(2) ? quantizedType(n, 2) : type;
  if (n.has(2) && type && type != to)
    return n.fail("output_dtype is not the type of the zero point");
  const NarrowFloat *narrow = narrowFloat(static_cast<int32_t>(to));
  auto range = narrow ? std::optional<Range>(Range{}) : rangeOf(n, to);
  if (!range)
    return failure();
  if (!isFloat(x)) // int32, exact in double
    x = e.cast(x, e.builder.getF64Type());
  int64_t axis = n.i("axis", 1), block = n.i("block_size", 0);
  Value zero = n.has(2) ? spread(n, n.in(2), x, axis, block) : Value();
  Value scale = spread(n, e.cast(n.in(1), elementOf(x)), x, axis, block);
  if (n.has(2) && !zero)
    return failure();
  if (narrow) { // a zero point only names the type: it is 0
    bool saturate = n.i("saturate", 1) != 0;
    return n.out(0, roundTo(e, e.div(x, scale), *narrow, saturate), narrow->onnxType);
  }
  return n.out(0, quantize(n, x, scale, zero, *range), range->onnxType);
}
Value dequantize(Node &n, Value q, Value scale, Value zero, int64_t axis, int64_t block) {
  Emitter &e = n.e;
  if (!q || !scale)
    return {};
  Value x = reals(n, q, elementOf(scale));
  if (zero)
    x = e.sub(x, spread(n, e.cast(zero, elementOf(scale)), x, axis, block));
  return e.mul(x, spread(n, scale, x, axis, block));
}
LogicalResult importDequantize(Node &n) {
  Value x = dequantize(n, n.in(0), n.in(1), n.has(2) ? n.in(2) : Value(), n.i("axis", 1),
                       n.i("block_size", 0));
  if (int64_t type = n.i("output_dtype", 0))
    if (Type element = elementType(n.e.context(), static_cast<int32_t>(type)))
      x = n.e.cast(x, element);
  return n.out(0, x, 0);
}

LogicalResult importDynamicQuantize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  Ints all = range(rankOf(x));
  Value high = e.reduce(x, "max", all, false), low = e.reduce(x, "min", all, false);
  high = e.max(high, e.like(high, 0));
  low = e.min(low, e.like(low, 0));
  Value scale = e.mul(e.sub(high, low), 1.0 / 255);
  Value zero = e.un("round", clamp(e, e.un("neg", e.div(low, scale)), 0, 255));
  Range bytes{e.builder.getI32Type(), 0, 255, onnx::TensorProto::UINT8};
  Value y = quantize(n, x, e.broadcast(scale, shapeOf(x)), e.broadcast(zero, shapeOf(x)),
                     bytes);
  if (failed(n.out(0, y, bytes.onnxType)) || failed(n.out(1, scale)))
    return failure();
  return n.out(2, e.cast(zero, bytes.type), bytes.onnxType);
}

/// An operand minus its zero point, in the type the sum is made in.
Value centred(Node &n, int operand, int zero, Type type, int64_t axis) {
  Emitter &e = n.e;
  Value x = e.cast(n.in(operand), type);
  if (!x || !n.has(zero))
    return x;
  return e.sub(x, spread(n, e.cast(n.in(zero), type), x, axis, 0));
}
LogicalResult importMatMulInteger(Node &n) {
  Type i32 = n.e.builder.getI32Type();
  return n.out(n.e.matmul(centred(n, 0, 2, i32, -2), centred(n, 1, 3, i32, -1)));
}
LogicalResult importConvInteger(Node &n) {
  Type wide = n.e.builder.getF64Type(); // exact for these sums
  Value y = convolution(n, centred(n, 0, 2, wide, 1), centred(n, 1, 3, wide, 0), {});
  return n.out(n.e.cast(y, n.e.builder.getI32Type()));
}
/// Operands 0 to 2 and 3 to 5: tensor, scale, zero point; 6 and 7: those of the result.
LogicalResult requantized(Node &n, Value real, int scale, int zero) {
  Value zeroPoint = n.in(zero);
  auto range = zeroPoint ? rangeOf(n, quantizedType(n, zero)) : std::nullopt;
  if (!range || !real)
    return failure();
  Value y = quantize(n, real, spread(n, n.in(scale), real, 1, 0),
                     spread(n, zeroPoint, real, 1, 0), *range);
  return n.out(0, y, range->onnxType);
}
LogicalResult importQLinearMatMul(Node &n) {
  Value a = dequantize(n, n.in(0), n.in(1), n.in(2), -2, 0);
  Value b = dequantize(n, n.in(3), n.in(4), n.in(5), -1, 0);
  return requantized(n, n.e.matmul(a, b), 6, 7);
}
LogicalResult importQLinearConv(Node &n) {
  Emitter &e = n.e;
  Value x = dequantize(n, n.in(0), n.in(1), n.in(2), 1, 0);
  Value w = dequantize(n, n.in(3), n.in(4), n.in(5), 0, 0), bias;
  if (n.has(8) && w) { // in units of both scales
    Value b = e.cast(n.in(8), elementOf(w));
    bias =
        b ? e.mul(b, e.mul(e.broadcast(n.in(1), shapeOf(b)), spread(n, n.in(4), b, 0, 0)))
          : b;
    if (!bias)
      return failure();
  }
  return requantized(n, convolution(n, x, w, bias), 6, 7);
}

} // namespace

void addQuantize(OpTable &table) {
  table["QuantizeLinear"] = importQuantize;
  table["DequantizeLinear"] = importDequantize;
  table["DynamicQuantizeLinear"] = importDynamicQuantize;
  table["MatMulInteger"] = importMatMulInteger;
  table["ConvInteger"] = importConvInteger;
  table["QLinearMatMul"] = importQLinearMatMul;
  table["QLinearConv"] = importQLinearConv;
}

} // namespace sluice::frontend
