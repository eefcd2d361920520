#pragma once
// Builds graph operations as expressions. A null value stands for "failed": operations on
// it give null again, and `error` says what went wrong first. Operations on constants are
// computed at once, so shape arithmetic never reaches the module.

#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"

#include <optional>
#include <string>

namespace sluice::frontend {

using mlir::Type;
using mlir::Value;
using mlir::ValueRange;
using Ints = llvm::SmallVector<int64_t, 8>;

class Emitter {
public:
  explicit Emitter(mlir::OpBuilder builder)
      : builder(builder), loc(builder.getUnknownLoc()) {}

  /// Starts a node: its location, no error.
  void begin(mlir::Location location);
  Value fail(const llvm::Twine &reason);
  const std::string &error() const { return firstError; }

  // Any operation by name.
  Value op(llvm::StringRef name, ValueRange operands,
           llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
  llvm::SmallVector<Value> ops(llvm::StringRef name, ValueRange operands,
                               llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
  mlir::NamedAttribute i64(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute i64s(llvm::StringRef name, llvm::ArrayRef<int64_t> values);
  mlir::NamedAttribute f64(llvm::StringRef name, double value);
  mlir::NamedAttribute str(llvm::StringRef name, llvm::StringRef value);
  mlir::NamedAttribute flag(llvm::StringRef name);
  /// Products of 16 bits are rounded to them, as ONNX says; others need no attribute.
  void roundTo16(Value x, llvm::SmallVectorImpl<mlir::NamedAttribute> &attributes);

  // Constants.
  Value constant(const graph::HostTensor &tensor);
  Value constant(mlir::ElementsAttr value);
  Value ints(llvm::ArrayRef<int64_t> values); // i64, rank 1
  Value splat(llvm::ArrayRef<int64_t> shape, Type element, double value);
  Value like(Value x, double value); // shape and type of x
  Value iota(llvm::ArrayRef<int64_t> shape, int64_t axis);

  // Elementwise; shapes are broadcast, element types must agree.
  Value un(llvm::StringRef name, Value x) { return op(name, {x}); }
  Value bin(llvm::StringRef name, Value a, Value b,
            llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
  Value add(Value a, Value b) { return bin("add", a, b); }
  Value sub(Value a, Value b) { return bin("sub", a, b); }
  Value mul(Value a, Value b) { return bin("mul", a, b); }
  Value div(Value a, Value b) { return bin("div", a, b); }
  Value max(Value a, Value b) { return bin("max", a, b); }
  Value min(Value a, Value b) { return bin("min", a, b); }
  Value add(Value x, double c) { return add(x, like(x, c)); }
  Value sub(double c, Value x) { return sub(like(x, c), x); }
  Value mul(Value x, double c) { return c == 1 ? x : mul(x, like(x, c)); }
  Value div(double c, Value x) { return div(like(x, c), x); }
  Value cmp(Value a, Value b, llvm::StringRef predicate);
  Value cmp(Value x, double c, llvm::StringRef predicate) {
    return cmp(x, like(x, c), predicate);
  }
  Value select(Value condition, Value a, Value b);
  Value cast(Value x, Type element);

  // Shape.
  Value reshape(Value x, llvm::ArrayRef<int64_t> shape);
  Value transpose(Value x, llvm::ArrayRef<int64_t> permutation);
  Value swap(Value x, int64_t a, int64_t b); // two dimensions
  Value broadcast(Value x, llvm::ArrayRef<int64_t> shape);
  /// A vector along dimension `axis` of `shape`.
  Value along(Value vector, llvm::ArrayRef<int64_t> shape, int64_t axis);
  Value slice(Value x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
              llvm::ArrayRef<int64_t> steps);
  Value sliceAxis(Value x, int64_t axis, int64_t start, int64_t size, int64_t step = 1);
  Value pad(Value x, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high,
            double value);
  Value concat(ValueRange parts, int64_t axis);
  Value squeeze(Value x, int64_t axis);
  Value unsqueeze(Value x, int64_t axis);

  // Reductions, products, indexing.
  Value reduce(Value x, llvm::StringRef kind, llvm::ArrayRef<int64_t> axes, bool keep);
  Value mean(Value x, llvm::ArrayRef<int64_t> axes, bool keep);
  Value contract(Value a, Value b, llvm::ArrayRef<int64_t> aBatch,
                 llvm::ArrayRef<int64_t> bBatch, llvm::ArrayRef<int64_t> aSum,
                 llvm::ArrayRef<int64_t> bSum);
  Value matmul(Value a, Value b); // NumPy's
  Value gather(Value x, Value indices, int64_t axis);

  /// The elements of a constant; nothing for any other value or one too large to look at.
  std::optional<graph::HostTensor> host(Value x) const;
  /// The same through operations on one value that folding left alone because of the size
  /// of their result (a repeated row, say).
  std::optional<graph::HostTensor> known(Value x);

  mlir::MLIRContext *context() const { return builder.getContext(); }
  Type f32() { return builder.getF32Type(); }
  Type i64Type() { return builder.getI64Type(); }
  Type boolType() { return builder.getI1Type(); }

  mlir::OpBuilder builder;
  mlir::Location loc;

private:
  bool infer(mlir::OperationState &state);
  bool checkSizes(mlir::TypeRange types);
  bool fold(mlir::Operation *op, llvm::SmallVectorImpl<Value> &results);
  bool foldSplat(mlir::Operation *op, llvm::SmallVectorImpl<Value> &results);

  std::string firstError;
  int64_t operations = 0, foldedElements = 0;
};

inline llvm::ArrayRef<int64_t> shapeOf(Value x) {
  return mlir::cast<mlir::RankedTensorType>(x.getType()).getShape();
}
inline int64_t rankOf(Value x) { return shapeOf(x).size(); }
inline int64_t dimOf(Value x, int64_t axis) { return shapeOf(x)[axis]; }
inline Type elementOf(Value x) {
  return mlir::cast<mlir::RankedTensorType>(x.getType()).getElementType();
}
inline bool isFloat(Value x) { return mlir::isa<mlir::FloatType>(elementOf(x)); }
/// Towards zero; what does not fit becomes the nearest integer that does.
int64_t toInteger(double value);
/// 1 for no dimensions; saturates.
int64_t elementCount(llvm::ArrayRef<int64_t> shape);
/// "2x3x4"
std::string shapeText(llvm::ArrayRef<int64_t> shape);
std::string typeText(Type type);
/// NumPy's broadcast of two shapes.
std::optional<Ints> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);
/// 0, 1, ..., n-1
Ints range(int64_t n);

/// The elements as an attribute of their type (reals are rounded to it).
mlir::ElementsAttr toAttribute(const graph::HostTensor &tensor);

} // namespace sluice::frontend
