#pragma once
// Index arithmetic of row-major shapes, and the checks that all families share.

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::graph {

inline int64_t product(llvm::ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

/// The type that products of such elements are summed in: f32 for 16 bits.
inline mlir::Type sumType(mlir::Type element) {
  bool half = element.isF16() || element.isBF16();
  return half ? mlir::Float32Type::get(element.getContext()) : element;
}
/// Element type of a product's result.
inline mlir::Type productType(mlir::Type element, std::optional<mlir::Type> roundTo) {
  return roundTo.value_or(sumType(element));
}

/// Precision is assigned after gradients are built: a product of 16-bit operands has
/// none.
mlir::LogicalResult expectWideProduct(mlir::Operation *op, mlir::Value operand);

/// Row-major strides, in elements.
inline llvm::SmallVector<int64_t> stridesOf(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// A shape seen from one axis: element (o, i, n) lies at (o * size + i) * inner + n.
struct AxisView {
  int64_t outer, size, inner;
  AxisView(llvm::ArrayRef<int64_t> shape, int64_t axis)
      : outer(product(shape.take_front(axis))), size(shape[axis]),
        inner(product(shape.drop_front(axis + 1))) {}
};

/// Calls f(offset) for every index of `shape` in row-major order, where offset is `start`
/// plus the sum of index times stride.
template <class F>
void forEachOffset(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
                   int64_t start, F f) {
  if (product(shape) == 0)
    return;
  if (shape.empty())
    return f(start);
  llvm::SmallVector<int64_t> index(shape.size(), 0);
  const int64_t last = shape.size() - 1;
  int64_t offset = start;
  while (true) {
    for (int64_t i = 0; i < shape[last]; ++i)
      f(offset + i * strides[last]);
    int64_t d = last - 1;
    for (; d >= 0; --d) {
      offset += strides[d];
      if (++index[d] < shape[d])
        break;
      offset -= shape[d] * strides[d];
      index[d] = 0;
    }
    if (d < 0)
      return;
  }
}

/// "[2, 3]"
std::string listText(llvm::ArrayRef<int64_t> values);

// Checks of `inferReturnTypes`; `op` is the operation's name. Each emits one error and
// fails.

/// The operand's type as a ranked tensor of static shape, or null after an error.
mlir::RankedTensorType operandType(llvm::StringRef op, std::optional<mlir::Location> loc,
                                   mlir::ValueRange operands, unsigned index);
/// 0 <= value < limit
llvm::LogicalResult checkRange(llvm::StringRef op, std::optional<mlir::Location> loc,
                               llvm::StringRef attribute, int64_t value, int64_t limit);
/// The list has one entry per dimension.
llvm::LogicalResult checkLength(llvm::StringRef op, std::optional<mlir::Location> loc,
                                llvm::StringRef attribute, llvm::ArrayRef<int64_t> list,
                                int64_t expected);
/// Every entry is at least `least`.
llvm::LogicalResult checkAtLeast(llvm::StringRef op, std::optional<mlir::Location> loc,
                                 llvm::StringRef attribute, llvm::ArrayRef<int64_t> list,
                                 int64_t least);
/// Entries are dimensions of a tensor of the rank given, none twice.
llvm::LogicalResult checkDimensions(llvm::StringRef op, std::optional<mlir::Location> loc,
                                    llvm::StringRef attribute,
                                    llvm::ArrayRef<int64_t> list, int64_t rank);

} // namespace sluice::graph
