#pragma once
// Vectors of 16 lanes, or of what one GPU thread holds: loads, stores, reductions and
// constants in the form that Elementwise::emitVector works on.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <cstdint>

namespace sluice {

/// How the elements of a reduction are put together.
enum class Combine { Sum, Max, Min, Product };

/// In registers: f32 and f64 as such, f16 and bf16 as f32 (a value of these types is
/// rounded where it is made, so storing it loses nothing), i1 as i1, i32 as i32, other
/// integers as i64. In memory an i1 is one byte.
class LaneBuilder {
public:
  using Value = mlir::Value;
  static constexpr int64_t lanes = 16; // on a CPU

  /// `width`: lanes of a vector, a power of two.
  explicit LaneBuilder(mlir::ImplicitLocOpBuilder &builder, int64_t width = lanes)
      : b(builder), width(width) {}

  mlir::VectorType vectorType(mlir::Type element) const;
  /// Bytes of an element in memory.
  static int64_t elementBytes(mlir::Type element);

  Value constant(int64_t value);
  /// All lanes `value`, given as the element of a splat attribute.
  Value splat(mlir::TypedAttr value, mlir::Type element);
  /// Lane i holds first + i.
  Value sequence(Value first);
  Value broadcast(Value scalar);
  /// The first `count` lanes.
  Value mask(int64_t count);
  Value mask(Value count);

  /// Address of element `index`.
  Value address(Value base, Value index, mlir::Type element);
  /// The elements of the lanes in `mask`, or of all; the other lanes are zero and their
  /// memory is not touched.
  /// `alignment` of the address in bytes; 0: that of an element.
  Value load(Value address, mlir::Type element, Value mask = {}, int64_t alignment = 0);
  /// One element in all lanes.
  Value loadSplat(Value address, mlir::Type element);
  void store(Value vector, Value address, mlir::Type element, Value mask = {},
             int64_t alignment = 0);
  /// The first lane.
  void storeScalar(Value vector, Value address, mlir::Type element);
  void prefetch(Value address);

  Value neutral(Combine combine, mlir::Type element);
  /// Adds `value` to an accumulator; minimum and maximum keep NaN.
  Value combine(Combine combine, Value accumulator, Value value);
  /// Joins four accumulators, then their lanes, in the one order that defines a
  /// reduction's bits: (0+2)+(1+3), then lanes 8, 4, 2 and 1 apart. All lanes get the
  /// result.
  Value combineAll(Combine combine, mlir::ValueRange accumulators);
  /// Joins the lanes of one accumulator in that order.
  Value combineLanes(Combine combine, Value accumulator);

  /// for (index = from; index < to; index += step), carrying values.
  using LoopBody =
      llvm::function_ref<void(Value index, llvm::SmallVector<Value> &carried)>;
  void loop(Value from, Value to, int64_t step, llvm::SmallVector<Value> &carried,
            LoopBody body);

  mlir::ImplicitLocOpBuilder &b;
  const int64_t width;

private:
  mlir::Type memoryType(mlir::Type element) const;
  Value fromMemory(Value value, mlir::Type element);
  Value toMemory(Value value, mlir::Type element);
  Value fromBf16(Value words);
  Value toBf16(Value rounded);
};

} // namespace sluice
