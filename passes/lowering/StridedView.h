#pragma once
// Values as strided parts of other values' bytes: what products read and write without a
// copy.

#include "ir/graph/Graph.h"
#include "passes/lowering/ProgramBuilder.h"

#include <optional>

namespace sluice {

/// Element (i, j, ...) of a value lies at root + offset + i * strides[0] + j * strides[1]
/// + ..., in elements.
struct StridedView {
  mlir::Value root;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;
};

/// Strides of the same elements under another shape, if they have any.
std::optional<llvm::SmallVector<int64_t>>
reshapeStrides(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
               llvm::ArrayRef<int64_t> newShape);

/// A value as it is.
StridedView contiguousView(mlir::Value value);

/// Looks through slices, transposes and reshapes that nobody has given bytes yet.
StridedView readView(mlir::Value value, const ProgramBuilder &builder);

/// Where `value` may be written so that transposes, reshapes and a concatenation behind
/// it need no copy: they are its only uses and their result has no bytes but its own.
StridedView writeView(mlir::Value value, const ProgramBuilder &builder);

/// The bytes from a view's first element on; `buffer` holds its root.
mlir::Value bytesFrom(const StridedView &view, mlir::Value buffer,
                      ProgramBuilder &builder);

} // namespace sluice
