#pragma once
// The initial values of the state as bytes.

#include "ir/plan/Plan.h"
#include "runtime/DType.h"
#include "runtime/Status.h"

#include <string>

namespace sluice {

/// The type in memory of a tensor's elements; nothing for types that no plan stores.
std::optional<DType> storedType(mlir::Type elementType);

/// Writes the parameters, buffers and constants of the module, in the order of their
/// offsets.
Status writeInitialState(llvm::ArrayRef<mlir::ModuleOp> modules, const std::string &path);

/// The bytes of a tensor's initial value; empty where its attribute holds none.
std::string initialBytes(plan::StateOp state);
bool haveSameInitialValue(plan::StateOp a, plan::StateOp b);

} // namespace sluice
