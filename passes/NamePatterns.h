#pragma once
// How a spec's memory section names nodes of the model: by globs of their names, or by a
// scope they lie in.

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace sluice {

/// Calls `visit` for each name of a model's node in the location.
void visitNames(mlir::Location loc, llvm::function_ref<void(llvm::StringRef)> visit);

/// True if `pattern` is a glob that matches the whole name; or has no wildcards and is a
/// scope, so that "blocks.0" names "/blocks.0/qkv/MatMul"; or is what PyTorch calls a
/// result, "/Add_output_0". "/x" and "x" are the same.
bool namesNode(llvm::StringRef pattern, llvm::StringRef node);

/// True if a name in the location is matched by one of the patterns.
bool namesAny(llvm::ArrayRef<std::string> patterns, mlir::Location loc);

/// "; nearest: 'a', 'b', 'c'" from the names of nodes, and the scopes of those, that are
/// most like `pattern`; empty where there are no names.
std::string nearestNames(llvm::StringRef pattern, llvm::ArrayRef<std::string> names);

} // namespace sluice
