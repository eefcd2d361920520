#pragma once
// CUDA kernels to LLVM IR, and on to PTX.

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace sluice::cuda {

/// The kernels at NVVM level: LLVM bitcode with intrinsics of the nvvm namespace, without
/// a target and before any pass of the backend. This is what the emulator in tests runs.
mlir::FailureOr<std::string> lowerCudaKernels(mlir::ModuleOp kernels);

/// PTX of that bitcode for `processor` ("sm_80": later ones accept its text too) and a
/// PTX version ("ptx80"). The same bitcode gives the same text.
mlir::FailureOr<std::string> writePtx(mlir::Location loc, const std::string &bitcode,
                                      const std::string &processor,
                                      const std::string &version);

} // namespace sluice::cuda
