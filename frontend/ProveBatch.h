#pragma once
// A model whose batch is fixed at 1 can run with a larger one only where its samples stay
// apart. This follows the batch dimension through a forward function to show that.

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
#include <string>

namespace sluice::frontend {

/// Arguments in `batched` hold `batch` samples along dimension 0. Returns the node that
/// mixes samples, or cannot be shown to keep them apart, with why. (Statistics of
/// training-mode batch normalisation are taken over the batch by definition, and a loss
/// is one number for all samples.)
std::optional<std::string> findMixing(mlir::func::FuncOp function,
                                      llvm::ArrayRef<bool> batched, int64_t batch);

} // namespace sluice::frontend
