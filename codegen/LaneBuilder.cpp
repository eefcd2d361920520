#include "codegen/LaneBuilder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace sluice;

namespace {
bool isHalf(Type element) { return element.isF16() || element.isBF16(); }

Type registerType(Type element) {
  if (isHalf(element))
    return Float32Type::get(element.getContext());
  if (element.isF32() || element.isF64() || element.isInteger(1) || element.isInteger(32))
    return element;
  return IntegerType::get(element.getContext(), 64);
}
} // namespace

VectorType LaneBuilder::vectorType(Type element) const {
  return VectorType::get({width}, registerType(element));
}

int64_t LaneBuilder::elementBytes(Type element) {
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

Value LaneBuilder::constant(int64_t value) {
  return b.create<arith::ConstantIntOp>(value, 64);
}

Value LaneBuilder::splat(TypedAttr value, Type element) {
  VectorType type = vectorType(element);
  TypedAttr scalar = value;
  if (auto real = dyn_cast<FloatAttr>(value); real && isHalf(element))
    scalar = b.getF32FloatAttr(static_cast<float>(real.getValueAsDouble()));
  if (auto integer = dyn_cast<IntegerAttr>(value))
    scalar =
        b.getIntegerAttr(type.getElementType(),
                         integer.getValue().sextOrTrunc(type.getElementTypeBitWidth()));
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(type, Attribute(scalar)));
}

Value LaneBuilder::sequence(Value first) {
  auto steps = llvm::to_vector(llvm::seq<int64_t>(0, width));
  Value step = b.create<arith::ConstantOp>(
      DenseIntElementsAttr::get(vectorType(b.getI64Type()), steps));
  return b.create<arith::AddIOp>(broadcast(first), step);
}

Value LaneBuilder::broadcast(Value scalar) {
  return b.create<vector::BroadcastOp>(VectorType::get({width}, scalar.getType()),
                                       scalar);
}

Value LaneBuilder::mask(Value count) {
  return b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, sequence(constant(0)),
                                 broadcast(count));
}

Value LaneBuilder::mask(int64_t count) {
  SmallVector<bool> bits(width);
  std::fill_n(bits.begin(), count, true);
  return b.create<arith::ConstantOp>(
      DenseElementsAttr::get(vectorType(b.getI1Type()), bits));
}

// bf16 as integers: LLVM's conversions to it flush denormals where the processor has
// them.
Type LaneBuilder::memoryType(Type element) const {
  return element.isInteger(1) ? b.getI8Type()
         : element.isBF16()   ? b.getI16Type()
                              : element;
}

Value LaneBuilder::fromMemory(Value value, Type element) {
  auto vector = cast<VectorType>(value.getType());
  if (element.isInteger(1)) {
    Value zero = b.create<arith::ConstantOp>(b.getZeroAttr(vector));
    return b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, value, zero);
  }
  if (vector == vectorType(element))
    return value;
  if (element.isF16())
    return b.create<arith::ExtFOp>(vectorType(element), value);
  if (element.isBF16())
    return fromBf16(value);
  return b.create<arith::ExtSIOp>(vectorType(element), value);
}

Value LaneBuilder::toMemory(Value value, Type element) {
  auto type = VectorType::get({width}, memoryType(element));
  if (value.getType() == type)
    return value;
  if (element.isInteger(1))
    return b.create<arith::ExtUIOp>(type, value);
  if (element.isF16())
    return b.create<arith::TruncFOp>(type, value);
  if (element.isBF16())
    return toBf16(value);
  return b.create<arith::TruncIOp>(type, value);
}

Value LaneBuilder::fromBf16(Value words) {
  auto type = VectorType::get({width}, b.getI32Type());
  Value sixteen = b.create<arith::ConstantOp>(DenseElementsAttr::get(type, 16));
  Value bits = b.create<arith::ShLIOp>(b.create<arith::ExtUIOp>(type, words), sixteen);
  return b.create<arith::BitcastOp>(VectorType::get({width}, b.getF32Type()), bits);
}

// The value is rounded already: bits are only cut.
Value LaneBuilder::toBf16(Value rounded) {
  auto type = VectorType::get({width}, b.getI32Type());
  Value sixteen = b.create<arith::ConstantOp>(DenseElementsAttr::get(type, 16));
  Value bits = b.create<arith::BitcastOp>(type, rounded);
  return b.create<arith::TruncIOp>(VectorType::get({width}, b.getI16Type()),
                                   b.create<arith::ShRUIOp>(bits, sixteen));
}

Value LaneBuilder::address(Value base, Value index, Type element) {
  return b.create<LLVM::GEPOp>(LLVM::LLVMPointerType::get(b.getContext()),
                               memoryType(element), base, ArrayRef<LLVM::GEPArg>{index});
}

Value LaneBuilder::load(Value address, Type element, Value mask, int64_t given) {
  auto type = VectorType::get({width}, memoryType(element));
  auto alignment = static_cast<unsigned>(given > 0 ? given : elementBytes(element));
  if (!mask)
    return fromMemory(b.create<LLVM::LoadOp>(type, address, alignment), element);
  Value zero = b.create<arith::ConstantOp>(b.getZeroAttr(type));
  Value loaded = b.create<LLVM::MaskedLoadOp>(type, address, mask, zero, alignment);
  return fromMemory(loaded, element);
}

Value LaneBuilder::loadSplat(Value address, Type element) {
  auto alignment = static_cast<unsigned>(elementBytes(element));
  Value scalar = b.create<LLVM::LoadOp>(memoryType(element), address, alignment);
  return fromMemory(broadcast(scalar), element);
}

void LaneBuilder::store(Value vector, Value address, Type element, Value mask,
                        int64_t given) {
  auto alignment = static_cast<unsigned>(given > 0 ? given : elementBytes(element));
  Value stored = toMemory(vector, element);
  if (mask)
    b.create<LLVM::MaskedStoreOp>(stored, address, mask, alignment);
  else
    b.create<LLVM::StoreOp>(stored, address, alignment);
}

void LaneBuilder::storeScalar(Value vector, Value address, Type element) {
  auto alignment = static_cast<unsigned>(elementBytes(element));
  Value scalar = b.create<vector::ExtractOp>(toMemory(vector, element), int64_t{0});
  b.create<LLVM::StoreOp>(scalar, address, alignment);
}

void LaneBuilder::prefetch(Value address) {
  constexpr int read = 0, keepInAllLevels = 3, data = 1;
  b.create<LLVM::Prefetch>(address, b.getI32IntegerAttr(read),
                           b.getI32IntegerAttr(keepInAllLevels),
                           b.getI32IntegerAttr(data));
}

Value LaneBuilder::neutral(Combine combine, Type element) {
  Type type = registerType(element);
  if (isa<FloatType>(type)) {
    double inf = std::numeric_limits<double>::infinity();
    double value = combine == Combine::Sum   ? 0
                   : combine == Combine::Max ? -inf
                   : combine == Combine::Min ? inf
                                             : 1;
    return splat(b.getFloatAttr(type, value), element);
  }
  // Of the type in memory: an i8 maximum over nothing is -128.
  unsigned width = element.getIntOrFloatBitWidth();
  APInt value = combine == Combine::Sum   ? APInt(width, 0)
                : combine == Combine::Max ? APInt::getSignedMinValue(width)
                : combine == Combine::Min ? APInt::getSignedMaxValue(width)
                                          : APInt(width, 1);
  return splat(b.getIntegerAttr(element, value), element);
}

Value LaneBuilder::combine(Combine combine, Value accumulator, Value value) {
  bool real = isa<FloatType>(cast<VectorType>(value.getType()).getElementType());
  if (combine == Combine::Sum)
    return real ? b.create<arith::AddFOp>(accumulator, value).getResult()
                : b.create<arith::AddIOp>(accumulator, value).getResult();
  if (combine == Combine::Product)
    return real ? b.create<arith::MulFOp>(accumulator, value).getResult()
                : b.create<arith::MulIOp>(accumulator, value).getResult();
  bool largest = combine == Combine::Max;
  if (!real)
    return largest ? b.create<arith::MaxSIOp>(accumulator, value).getResult()
                   : b.create<arith::MinSIOp>(accumulator, value).getResult();
  // One vmaxps, then a NaN in `value` wins; one in the accumulator stays since it
  // compares false.
  Value better = b.create<arith::CmpFOp>(largest ? arith::CmpFPredicate::OGT
                                                 : arith::CmpFPredicate::OLT,
                                         value, accumulator);
  Value chosen = b.create<arith::SelectOp>(better, value, accumulator);
  Value isNan = b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, value, value);
  return b.create<arith::SelectOp>(isNan, value, chosen);
}

Value LaneBuilder::combineAll(Combine kind, ValueRange accumulators) {
  Value even = combine(kind, accumulators[0], accumulators[2]);
  Value odd = combine(kind, accumulators[1], accumulators[3]);
  return combineLanes(kind, combine(kind, even, odd));
}

Value LaneBuilder::combineLanes(Combine kind, Value result) {
  for (int64_t distance = width / 2; distance > 0; distance /= 2) {
    SmallVector<int64_t> order;
    for (int64_t lane = 0; lane < width; ++lane)
      order.push_back(lane ^ distance);
    Value moved = b.create<vector::ShuffleOp>(result, result, order);
    result = combine(kind, result, moved);
  }
  return result;
}

void LaneBuilder::loop(Value from, Value to, int64_t step, SmallVector<Value> &carried,
                       LoopBody body) {
  auto loop = b.create<scf::ForOp>(from, to, constant(step), carried);
  OpBuilder::InsertionGuard guard(b);
  Block *block = loop.getBody();
  if (carried.empty())
    b.setInsertionPoint(block->getTerminator());
  else
    b.setInsertionPointToEnd(block);
  SmallVector<Value> inside(loop.getRegionIterArgs());
  body(loop.getInductionVar(), inside);
  if (!carried.empty())
    b.create<scf::YieldOp>(inside);
  carried.assign(loop.result_begin(), loop.result_end());
}
