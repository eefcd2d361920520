#pragma once
// Values as strided parts of other values' bytes: what products read and write without a
// copy.

#include "ir/graph/Graph.h"
#include "passes/lowering/ProgramBuilder.h"

#include <optional>

namespace sluice {

/// Strides of the same elements under another shape, if they have any.
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> newShape);

/// A value as it is.
StridedView contiguousView(mlir::Value value);

/// Looks through slices, transposes and reshapes that nobody has given bytes yet, to
/// where a value was placed.
StridedView readView(mlir::Value value, const ProgramBuilder &builder);

/// Where `value` may be written so that transposes, reshapes and a concatenation behind
/// it need no copy: they are its only uses and their result has no bytes but its own.
/// With `user` it is the use to look through, and others read the value where it is
/// placed.
StridedView writeView(mlir::Value value, const ProgramBuilder &builder,
                      mlir::Operation *user = nullptr);

/// The bytes from a view's first element on; `buffer` holds its root.
mlir::Value bytesFrom(const StridedView &view, mlir::Value buffer,
                      ProgramBuilder &builder);

} // namespace sluice
