#pragma once
// Machine code of generated kernels: one shared image without relocations per feature
// level.

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <string>
#include <vector>

namespace llvm {
class Module;
}

namespace sluice {

/// An ELF shared object without relocations whose symbols are the kernels.
struct KernelImage {
  std::string level; // "x86-64-v3" or "x86-64-v4"
  std::string bytes;
};

struct KernelCompilerOptions {
  std::vector<std::string> levels = {"x86-64-v3", "x86-64-v4"};
  /// Sees the final LLVM IR of each level (called from one thread at a time).
  std::function<void(const llvm::Module &, llvm::StringRef level)> inspect;
};

/// Compiles all functions of `kernels`, which is left as it is. The same module gives the
/// same bytes. Emits an error at the module if an operation has no code of its own
/// (nothing may be called from outside the image).
mlir::FailureOr<std::vector<KernelImage>>
compileKernels(mlir::ModuleOp kernels, const KernelCompilerOptions &options = {});

} // namespace sluice
