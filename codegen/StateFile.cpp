#include "codegen/StateFile.h"

#include "ir/graph/Graph.h"
#include "runtime/Safetensors.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace sluice {
namespace {

/// Bytes of one tensor: its own, or those that an attribute holds.
struct TensorBytes {
  std::vector<char> owned;
  ArrayRef<char> bytes;
};

void appendElement(std::vector<char> &bytes, const APInt &value, int64_t size) {
  uint64_t word = value.zextOrTrunc(64).getZExtValue();
  const char *source = reinterpret_cast<const char *>(&word); // little-endian
  bytes.insert(bytes.end(), source, source + size);
}

APInt bitsOf(Attribute element) {
  if (auto real = dyn_cast<FloatAttr>(element))
    return real.getValue().bitcastToAPInt();
  return cast<IntegerAttr>(element).getValue();
}

std::vector<char> repeated(const APInt &value, int64_t elementBytes, int64_t count) {
  std::vector<char> bytes;
  bytes.reserve(elementBytes * count);
  for (int64_t i = 0; i < count; ++i)
    appendElement(bytes, value, elementBytes);
  return bytes;
}

/// Of a shard that of the whole tensor, of which each rank takes its part.
RankedTensorType wholeType(plan::StateOp state) {
  RankedTensorType type = state.getTensorType();
  auto whole = state->getAttrOfType<DenseI64ArrayAttr>(graph::wholeShapeAttr);
  return whole ? type.clone(whole.asArrayRef()) : type;
}

/// The initial value, or nothing when the attribute is of a kind that holds no bytes.
std::optional<TensorBytes> bytesOf(plan::StateOp state) {
  RankedTensorType type = wholeType(state);
  int64_t size = plan::elementBytes(type.getElementType());
  int64_t count = type.getNumElements();
  TensorBytes result;
  if (!state.getValue()) {
    double fill = state.getFill().convertToDouble();
    Attribute element =
        isa<FloatType>(type.getElementType())
            ? Attribute(FloatAttr::get(type.getElementType(), fill))
            : IntegerAttr::get(type.getElementType(), static_cast<int64_t>(fill));
    result.owned = repeated(bitsOf(element), size, count);
  } else if (auto resource = dyn_cast<DenseResourceElementsAttr>(*state.getValue())) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!blob || int64_t(blob->getData().size()) != size * count)
      return std::nullopt;
    result.bytes = blob->getData();
    return result;
  } else if (auto dense = dyn_cast<DenseElementsAttr>(*state.getValue())) {
    bool packedBits = type.getElementType().isInteger(1);
    if (!dense.isSplat() && !packedBits) {
      result.bytes = dense.getRawData();
      return result;
    }
    for (Attribute element : dense.getValues<Attribute>())
      appendElement(result.owned, bitsOf(element), size);
  } else {
    return std::nullopt;
  }
  result.bytes = result.owned;
  return result;
}

bool belongsInFile(plan::StateOp state) {
  return state.getInit() == "file" || state.getRole() == "parameter" ||
         state.getRole() == "buffer" || state.getRole() == "master";
}

} // namespace

std::optional<DType> storedType(Type type) {
  if (type.isF32())
    return DType::f32;
  if (type.isF64())
    return DType::f64;
  if (type.isF16())
    return DType::f16;
  if (type.isBF16())
    return DType::bf16;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return std::nullopt;
  bool isUnsigned = integer.isUnsigned();
  switch (integer.getWidth()) {
  case 1:
    return DType::i1;
  case 8:
    return isUnsigned ? DType::u8 : DType::i8;
  case 16:
    return isUnsigned ? DType::u16 : DType::i16;
  case 32:
    return isUnsigned ? DType::u32 : DType::i32;
  case 64:
    return isUnsigned ? DType::u64 : DType::i64;
  default:
    return std::nullopt;
  }
}

std::string initialBytes(plan::StateOp state) {
  std::optional<TensorBytes> value = bytesOf(state);
  return value ? std::string(value->bytes.begin(), value->bytes.end()) : std::string();
}

bool haveSameInitialValue(plan::StateOp a, plan::StateOp b) {
  if (a.getValueAttr() == b.getValueAttr() && a.getFillAttr() == b.getFillAttr())
    return true;
  std::optional<TensorBytes> left = bytesOf(a), right = bytesOf(b);
  return left && right && left->bytes == right->bytes;
}

Status writeInitialState(ArrayRef<ModuleOp> modules, const std::string &path) {
  std::vector<TensorBytes> values; // outlive the write; moves keep what they point to
  std::vector<TensorToWrite> tensors;
  std::vector<plan::StateOp> states;
  llvm::StringSet<> known; // what several modules have is the same
  for (ModuleOp module : modules)
    for (auto state : module.getOps<plan::StateOp>())
      if (belongsInFile(state) && known.insert(state.getSymName()).second)
        states.push_back(state);
  for (plan::StateOp state : states) {
    std::optional<TensorBytes> value = bytesOf(state);
    std::optional<DType> type = storedType(state.getTensorType().getElementType());
    if (!value || !type)
      return Status::refused("the initial value of '" + state.getSymName().str() +
                             "' has no bytes that can be stored");
    tensors.push_back({state.getSymName().str(), *type, wholeType(state).getShape().vec(),
                       value->bytes.data(), value->bytes.size()});
    values.push_back(std::move(*value));
  }
  return writeSafetensors(path, tensors, {{"kind", "initial state"}});
}

} // namespace sluice
