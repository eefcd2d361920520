#pragma once
// The mark of values that are stored for later in fewer bits.

#include "llvm/ADT/StringRef.h"

namespace sluice::graph {

/// On `quantize` ("store") and `dequantize` ("load") of values that are kept for later,
/// and on what they are made of: the two sides are never put into one kernel, which would
/// read the value itself.
inline constexpr llvm::StringLiteral savedAttr = "graph.saved";

} // namespace sluice::graph
