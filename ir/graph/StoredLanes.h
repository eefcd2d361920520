#pragma once
// Codes of a few bits as vector code: the bits of kernels/Minifloat.h.

#include "ir/graph/VectorMath.h"
#include "kernels/Minifloat.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace sluice::graph {

/// Codes are i32 lanes, from 0 on.
class StoredLanes {
public:
  using Value = mlir::Value;
  StoredLanes(mlir::ImplicitLocOpBuilder &builder, const Minifloat &format)
      : b(builder), m(builder), format(format) {}

  /// Of x with the sign of `signs`; `noise` null: nearest, ties to even.
  Value encode(Value x, Value signs, Value noise);
  Value decode(Value code);

  Value is(mlir::arith::CmpIPredicate predicate, Value n, int64_t value);
  Value shiftRight(Value n, int64_t by);
  Value shiftLeft(Value n, int64_t by);
  Value bitAnd(Value n, int64_t mask);
  Value bitOr(Value a, Value c);
  Value isNan(Value x);
  Value toInteger(Value x);
  Value toReal(Value n);

private:
  Value small(Value a, Value noise);
  Value normal(Value a, Value noise);

  mlir::ImplicitLocOpBuilder &b;
  VectorMath m;
  const Minifloat &format;
};

} // namespace sluice::graph
