#pragma once
// Builds expressions of graph operations: what gradients and decompositions are written
// with.

#include "ir/graph/Graph.h"

namespace sluice::graph {

/// All methods insert at the builder's insertion point, at one location. Operands of one
/// elementwise expression have equal shapes.
class GraphBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using Value = mlir::Value;
  using Sizes = llvm::ArrayRef<int64_t>;
  GraphBuilder(mlir::Location loc, mlir::OpBuilder &builder)
      : ImplicitLocOpBuilder(loc, builder) {}

  template <class OpT, class... Args> Value make(Args &&...args) {
    return create<OpT>(std::forward<Args>(args)...)->getResult(0);
  }

  /// A constant with the same value everywhere (converted to the element type).
  Value splat(mlir::RankedTensorType type, double value);
  Value splatLike(Value like, double value) { return splat(tensorType(like), value); }

  Value add(Value a, Value b) { return make<AddOp>(a, b); }
  Value sub(Value a, Value b) { return make<SubOp>(a, b); }
  Value mul(Value a, Value b) { return make<MulOp>(a, b); }
  Value div(Value a, Value b) { return make<DivOp>(a, b); }
  Value neg(Value x) { return make<NegOp>(x); }
  Value exp(Value x) { return make<ExpOp>(x); }
  Value log(Value x) { return make<LogOp>(x); }
  Value sqrt(Value x) { return make<SqrtOp>(x); }
  Value rsqrt(Value x) { return make<RsqrtOp>(x); }
  Value square(Value x) { return mul(x, x); }
  Value scale(Value x, double factor) {
    return factor == 1 ? x : mul(x, splatLike(x, factor));
  }
  Value shift(Value x, double summand) { return add(x, splatLike(x, summand)); }
  Value compare(Value a, llvm::StringRef predicate, Value b) {
    return make<CompareOp>(a, b, predicate);
  }
  Value select(Value condition, Value a, Value b) {
    return make<SelectOp>(condition, a, b);
  }

  // These return the value itself where nothing would change.
  Value cast(Value x, mlir::Type elementType);
  Value reshape(Value x, Sizes shape);
  Value transpose(Value x, Sizes permutation);
  Value broadcast(Value x, Sizes shape);
  Value broadcastLike(Value x, Value like) {
    return broadcast(x, tensorType(like).getShape());
  }
  Value reduce(Value x, llvm::StringRef kind, Sizes axes, bool keep);
  Value sum(Value x, Sizes axes, bool keep) { return reduce(x, "sum", axes, keep); }
  /// The sum of all elements, a scalar.
  Value sumAll(Value x);
  /// Undoes `reduce` (with or without `keep`): repeats along the reduced dimensions.
  Value spread(Value y, Sizes shape, Sizes axes);
  /// Adjoint of `broadcast`: sums over the dimensions that were repeated.
  Value sumTo(Value x, Sizes shape);
  /// Places a vector along one dimension of `shape` and repeats it along the others.
  Value broadcastAlong(Value vector, Sizes shape, int64_t axis);
};

} // namespace sluice::graph
