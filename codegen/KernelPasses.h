#pragma once
// What LLVM simplifies in the kernels before it writes code, for CPUs and for CUDA.

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace sluice {

/// The vectors are written out already: no loop or SLP vectoriser, and little else is
/// left to do.
void simplifyKernels(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace sluice
