#pragma once
// What the optimizers' references and decompositions share.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"

#include <cmath>

namespace sluice::graph {

/// All tensors of an update have the shape of the parameter.
mlir::LogicalResult checkUpdate(std::optional<mlir::Location> loc, llvm::StringRef name,
                                mlir::Value w, mlir::ValueRange others);

inline double real(const llvm::APFloat &x) { return x.convertToDouble(); }

/// Moves a moving average: keep * old + (1 - keep) * x.
inline double moved(double old, double keep, double x) {
  return keep * old + (1 - keep) * x;
}

/// Pieces of updates, each operation rounded on its own.
class UpdateBuilder : public GraphBuilder {
public:
  UpdateBuilder(mlir::Operation *op, mlir::OpBuilder &builder)
      : GraphBuilder(op->getLoc(), builder) {}

  /// A control in the parameter's element type; stays a scalar.
  Value control(Value scalar, Value w) {
    return cast(scalar, tensorType(w).getElementType());
  }
  Value times(Value x, Value scalar) { return mul(x, broadcastLike(scalar, x)); }
  /// g + decay * w: decay as part of the gradient.
  Value withDecay(Value g, Value w, double decay) {
    return decay == 0 ? g : add(g, scale(w, decay));
  }
  /// w * (1 - lr * decay): decay beside the gradient.
  Value decayed(Value w, Value lr, double decay) {
    if (decay == 0)
      return w;
    return times(w, sub(splatLike(lr, 1), scale(lr, decay)));
  }
  Value average(Value old, double keep, Value x) {
    return add(scale(old, keep), scale(x, 1 - keep));
  }
  Value averageSquare(Value old, double keep, Value x) {
    return add(scale(old, keep), mul(scale(x, 1 - keep), x));
  }
  /// x / (sqrt(v) + eps)
  Value overRoot(Value x, Value v, double eps) { return div(x, shift(sqrt(v), eps)); }
  /// v / correction, by one division of scalars.
  Value corrected(Value v, Value correction) {
    return times(v, div(splatLike(correction, 1), correction));
  }
  Value norm(Value x) { return sqrt(sumAll(square(x))); }
};

} // namespace sluice::graph
