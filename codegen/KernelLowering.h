#pragma once
// From the kernel module to LLVM IR.

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace sluice {

/// The kernels as LLVM bitcode, not yet for any feature level.
/// `finish` sees the module in the LLVM dialect.
mlir::FailureOr<std::string>
lowerKernels(mlir::ModuleOp kernels,
             llvm::function_ref<void(mlir::ModuleOp)> finish = {});

} // namespace sluice
