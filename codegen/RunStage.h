#pragma once
// Runs passes and collects what they complain about.

#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

#include <string>

namespace sluice {

/// Collects errors instead of printing them.
class DiagnosticText {
public:
  explicit DiagnosticText(mlir::MLIRContext *context);
  std::string text;

private:
  void append(mlir::Diagnostic &diagnostic, llvm::StringRef prefix);
  mlir::ScopedDiagnosticHandler handler;
};

/// Runs the passes that `build` adds.
Status runStage(mlir::ModuleOp module,
                llvm::function_ref<void(mlir::OpPassManager &)> build);

} // namespace sluice
