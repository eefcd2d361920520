#include "frontend/onnx/TensorData.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/NarrowFloat.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"

namespace sluice::frontend {

using namespace mlir;
using onnx::TensorProto;

namespace {

struct TypeEntry {
  int32_t onnx;
  const char *name;
  int bits; // as stored; below 8 two elements share a byte, the first in its low bits
  int unsignedBits;
};
// The installed onnx library may not know these.
constexpr int32_t uint4 = 21, int4 = 22;
constexpr TypeEntry types[] = {{TensorProto::FLOAT, "float", 32, 0},
                               {TensorProto::UINT8, "uint8", 8, 8},
                               {TensorProto::INT8, "int8", 8, 0},
                               {TensorProto::UINT16, "uint16", 16, 16},
                               {TensorProto::INT16, "int16", 16, 0},
                               {TensorProto::INT32, "int32", 32, 0},
                               {TensorProto::INT64, "int64", 64, 0},
                               {TensorProto::BOOL, "bool", 8, 0},
                               {TensorProto::FLOAT16, "float16", 16, 0},
                               {TensorProto::DOUBLE, "double", 64, 0},
                               {TensorProto::UINT32, "uint32", 32, 32},
                               {TensorProto::UINT64, "uint64", 64, 64},
                               {TensorProto::BFLOAT16, "bfloat16", 16, 0},
                               {17, "float8e4m3fn", 8, 0},
                               {18, "float8e4m3fnuz", 8, 0},
                               {19, "float8e5m2", 8, 0},
                               {20, "float8e5m2fnuz", 8, 0},
                               {uint4, "uint4", 4, 4},
                               {int4, "int4", 4, 0},
                               {23, "float4e2m1", 4, 0}};

const TypeEntry *find(int32_t onnxType) {
  for (const TypeEntry &entry : types)
    if (entry.onnx == onnxType)
      return &entry;
  return nullptr;
}

/// Copies a repeated field into bytes of type T, converting from its wider carrier.
template <typename T, typename Field> Bytes copyField(const Field &field) {
  auto values = std::make_shared<std::vector<T>>();
  values->reserve(field.size());
  for (auto value : field)
    values->push_back(static_cast<T>(value));
  return {reinterpret_cast<const char *>(values->data()), values->size() * sizeof(T),
          values};
}

Bytes typedField(const TensorProto &tensor) {
  switch (tensor.data_type()) {
  case TensorProto::FLOAT:
    return copyField<float>(tensor.float_data());
  case TensorProto::DOUBLE:
    return copyField<double>(tensor.double_data());
  case TensorProto::INT64:
    return copyField<int64_t>(tensor.int64_data());
  case TensorProto::UINT64:
    return copyField<uint64_t>(tensor.uint64_data());
  case TensorProto::UINT32:
    return copyField<uint32_t>(tensor.uint64_data());
  case TensorProto::INT32:
    return copyField<int32_t>(tensor.int32_data());
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::UINT16:
  case TensorProto::INT16:
    return copyField<uint16_t>(tensor.int32_data());
  default:
    return copyField<uint8_t>(tensor.int32_data());
  }
}

template <typename T> T element(const Bytes &bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data + i * sizeof(T), sizeof(T));
  return value;
}

double half(uint16_t bits, const llvm::fltSemantics &semantics) {
  APFloat value(semantics, APInt(16, bits));
  bool lost;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return value.convertToDouble();
}

uint8_t nibble(const Bytes &bytes, int64_t i) {
  return (element<uint8_t>(bytes, i / 2) >> (i % 2 * 4)) & 15;
}

void setElement(graph::HostTensor &out, int32_t type, const Bytes &bytes, int64_t i) {
  if (const NarrowFloat *format = narrowFloat(type)) {
    uint8_t bits = find(type)->bits == 4 ? nibble(bytes, i) : element<uint8_t>(bytes, i);
    out.reals[i] = decode(*format, bits);
    return;
  }
  switch (type) {
  case uint4:
    out.integers[i] = nibble(bytes, i);
    break;
  case int4:
    out.integers[i] = (nibble(bytes, i) ^ 8) - 8;
    break;
  case TensorProto::FLOAT:
    out.reals[i] = element<float>(bytes, i);
    break;
  case TensorProto::DOUBLE:
    out.reals[i] = element<double>(bytes, i);
    break;
  case TensorProto::FLOAT16:
    out.reals[i] = half(element<uint16_t>(bytes, i), APFloat::IEEEhalf());
    break;
  case TensorProto::BFLOAT16:
    out.reals[i] = half(element<uint16_t>(bytes, i), APFloat::BFloat());
    break;
  case TensorProto::INT8:
    out.integers[i] = element<int8_t>(bytes, i);
    break;
  case TensorProto::UINT8:
    out.integers[i] = element<uint8_t>(bytes, i);
    break;
  case TensorProto::BOOL:
    out.integers[i] = element<uint8_t>(bytes, i) != 0;
    break;
  case TensorProto::INT16:
    out.integers[i] = element<int16_t>(bytes, i);
    break;
  case TensorProto::UINT16:
    out.integers[i] = element<uint16_t>(bytes, i);
    break;
  case TensorProto::INT32:
    out.integers[i] = element<int32_t>(bytes, i);
    break;
  case TensorProto::UINT32:
    out.integers[i] = element<uint32_t>(bytes, i);
    break;
  default:
    out.integers[i] = element<int64_t>(bytes, i);
    break;
  }
}

} // namespace

Type elementType(MLIRContext *context, int32_t onnxType) {
  Builder b(context);
  switch (onnxType) {
  case TensorProto::FLOAT:
    return b.getF32Type();
  case uint4:
  case int4:
    return b.getIntegerType(8);
  case TensorProto::DOUBLE:
    return b.getF64Type();
  case TensorProto::FLOAT16:
    return b.getF16Type();
  case TensorProto::BFLOAT16:
    return b.getBF16Type();
  case TensorProto::BOOL:
    return b.getI1Type();
  case TensorProto::INT8:
    return b.getIntegerType(8);
  case TensorProto::INT16:
    return b.getIntegerType(16);
  case TensorProto::UINT8:
  case TensorProto::UINT16:
  case TensorProto::INT32:
    return b.getI32Type();
  case TensorProto::UINT32:
  case TensorProto::UINT64:
  case TensorProto::INT64:
    return b.getI64Type();
  default:
    return narrowFloat(onnxType) ? b.getF32Type() : Type();
  }
}
std::string onnxTypeName(int32_t onnxType) {
  if (const TypeEntry *entry = find(onnxType))
    return entry->name;
  // Types that the installed onnx library may not know yet.
  static const std::pair<int32_t, const char *> others[] = {
      {TensorProto::STRING, "string"},
      {TensorProto::COMPLEX64, "complex64"},
      {TensorProto::COMPLEX128, "complex128"},
      {24, "float8e8m0"},
      {25, "uint2"},
      {26, "int2"}};
  for (auto [number, name] : others)
    if (number == onnxType)
      return name;
  return "type number " + std::to_string(onnxType);
}
int unsignedBits(int32_t onnxType) {
  const TypeEntry *entry = find(onnxType);
  return entry ? entry->unsignedBits : 0;
}

RankedTensorType TensorReader::type(const TensorProto &tensor, std::string &error) {
  Ints shape(tensor.dims().begin(), tensor.dims().end());
  Type element = elementType(context, tensor.data_type());
  if (!element)
    error = "tensors of " + onnxTypeName(tensor.data_type()) + " are not supported";
  else if (llvm::any_of(shape, [](int64_t d) { return d < 0; }))
    error = "its shape " + shapeText(shape) + " has a negative dimension";
  else if (elementCount(shape) > maxElements ||
           static_cast<int64_t>(shape.size()) > maxRank)
    error = "its shape " + shapeText(shape) + " passes the limit of 2^36 elements";
  else
    return RankedTensorType::get(shape, element);
  return {};
}

std::optional<Bytes> TensorReader::load(TensorProto &tensor, std::string &error) {
  auto type = this->type(tensor, error);
  if (!type)
    return std::nullopt;
  int64_t count = type.getNumElements();
  int64_t size = (count * find(tensor.data_type())->bits + 7) / 8;
  if (tensor.has_segment())
    return error = "tensors in segments are not supported", std::nullopt;
  Bytes bytes;
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    if (auto problem = external.find(tensor, size, bytes))
      return error = *problem, std::nullopt;
  } else if (tensor.has_raw_data()) {
    auto owner = std::shared_ptr<std::string>(tensor.release_raw_data());
    bytes = {owner->data(), owner->size(), owner};
  } else {
    bytes = typedField(tensor);
    google::protobuf::RepeatedField<float>().Swap(tensor.mutable_float_data());
    google::protobuf::RepeatedField<double>().Swap(tensor.mutable_double_data());
  }
  if (static_cast<int64_t>(bytes.size) != size)
    return error = "it holds " + std::to_string(bytes.size) + " bytes, its shape " +
                   shapeText(type.getShape()) + " of " +
                   onnxTypeName(tensor.data_type()) + " needs " + std::to_string(size),
           std::nullopt;
  return bytes;
}

std::optional<Bytes> TensorReader::bytes(TensorProto &tensor, std::string &error) {
  auto known = loaded.find(&tensor);
  if (known != loaded.end())
    return known->second;
  auto result = load(tensor, error);
  if (result)
    loaded[&tensor] = *result;
  return result;
}

ElementsAttr TensorReader::attribute(TensorProto &tensor, std::string &error) {
  auto type = this->type(tensor, error);
  auto data = type ? bytes(tensor, error) : std::nullopt;
  if (!data)
    return {};
  size_t width = std::max(1, find(tensor.data_type())->bits / 8);
  bool sameBytes =
      isa<FloatType>(type.getElementType()) && type.getElementTypeBitWidth() == width * 8;
  bool aligned = reinterpret_cast<uintptr_t>(data->data) % width == 0;
  if (sameBytes && static_cast<int64_t>(data->size) >= resourceBytes) {
    ArrayRef<char> range(data->data, data->size);
    AsmResourceBlob blob =
        aligned ? AsmResourceBlob(
                      range, width, [owner = data->owner](void *, size_t, size_t) {},
                      /*dataIsMutable=*/false)
                : HeapAsmResourceBlob::allocateAndCopyWithAlign(range, width);
    return DenseResourceElementsAttr::get(type, tensor.name(), std::move(blob));
  }
  auto values = host(tensor, error);
  return values ? toAttribute(*values) : ElementsAttr();
}

std::optional<graph::HostTensor> TensorReader::host(TensorProto &tensor,
                                                    std::string &error) {
  auto type = this->type(tensor, error);
  auto data = type ? bytes(tensor, error) : std::nullopt;
  if (!data)
    return std::nullopt;
  graph::HostTensor out = graph::HostTensor::zeros(type);
  for (int64_t i = 0, count = type.getNumElements(); i < count; ++i)
    setElement(out, tensor.data_type(), *data, i);
  return out;
}

} // namespace sluice::frontend
