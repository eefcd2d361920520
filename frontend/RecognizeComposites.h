#pragma once
// Finds normalisations, softmax and activations in their decomposed forms and replaces
// each by the one operation it is.

#include "ir/graph/Graph.h"

#include <map>
#include <string>

namespace sluice {

/// How many were found, by operation name.
std::map<std::string, int64_t> recognizeComposites(mlir::func::FuncOp function);

} // namespace sluice
