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

/// A hyper-parameter: the attribute of that name, or the scalar given in its place.
struct Hyper {
  double number = 0;
  mlir::Value scalar;
  bool isZero() const { return !scalar && number == 0; }
};

/// `rest`: 1 minus it.
Hyper hyperOf(mlir::Operation *op, llvm::StringRef name, bool rest = false);
/// Its value, for references.
double hyperOf(Evaluation &eval, llvm::StringRef name);

/// Moves a moving average: keep * old + (1 - keep) * x.
inline double moved(double old, double keep, double x) {
  return keep * old + (1 - keep) * x;
}

/// Pieces of updates, each operation rounded on its own.
class UpdateBuilder : public GraphBuilder {
public:
  UpdateBuilder(mlir::Operation *op, mlir::OpBuilder &builder)
      : GraphBuilder(op->getLoc(), builder), op(op) {}

  Hyper hyper(llvm::StringRef name) const { return hyperOf(op, name); }
  Hyper rest(llvm::StringRef name) const { return hyperOf(op, name, /*rest=*/true); }

  /// A control in the parameter's element type; stays a scalar.
  Value control(Value scalar, Value w) {
    return cast(scalar, tensorType(w).getElementType());
  }
  Value times(Value x, Value scalar) { return mul(x, broadcastLike(scalar, x)); }
  using GraphBuilder::scale;
  Value scale(Value x, const Hyper &factor) {
    return factor.scalar ? times(x, control(factor.scalar, x)) : scale(x, factor.number);
  }
  /// The hyper-parameter at every element.
  Value like(Value x, const Hyper &value) {
    return value.scalar ? broadcastLike(control(value.scalar, x), x)
                        : splatLike(x, value.number);
  }
  /// g + decay * w: decay as part of the gradient.
  Value withDecay(Value g, Value w) {
    Hyper decay = hyper("weight_decay");
    return decay.isZero() ? g : add(g, scale(w, decay));
  }
  /// w * (1 - lr * decay): decay beside the gradient.
  Value decayed(Value w, Value lr) {
    Hyper decay = hyper("weight_decay");
    if (decay.isZero())
      return w;
    return times(w, sub(splatLike(lr, 1), scale(lr, decay)));
  }
  /// A moving average that keeps the share `keep` of the old value.
  Value average(Value old, llvm::StringRef keep, Value x) {
    return add(scale(old, hyper(keep)), scale(x, rest(keep)));
  }
  Value averageSquare(Value old, llvm::StringRef keep, Value x) {
    return add(scale(old, hyper(keep)), mul(scale(x, rest(keep)), x));
  }
  /// x / (sqrt(v) + epsilon)
  Value overRoot(Value x, Value v) {
    Value root = sqrt(v);
    return div(x, add(root, like(root, hyper("epsilon"))));
  }
  /// v / correction, by one division of scalars.
  Value corrected(Value v, Value correction) {
    return times(v, div(splatLike(correction, 1), correction));
  }
  Value norm(Value x) { return sqrt(sumAll(square(x))); }

private:
  mlir::Operation *op;
};

} // namespace sluice::graph
