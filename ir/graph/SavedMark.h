#pragma once
// Marks on operations that no pass may join or fuse across.

#include "llvm/ADT/StringRef.h"

namespace sluice::graph {

/// On `quantize` ("store") and `dequantize` ("load") of values that are kept for later,
/// and on what they are made of: the two sides are never put into one kernel, which would
/// read the value itself.
inline constexpr llvm::StringLiteral savedAttr = "graph.saved";

/// On what is computed again for one reader on purpose: its index, which keeps CSE from
/// joining it with the others.
inline constexpr llvm::StringLiteral siteAttr = "graph.site";

/// On `mini_decode` of a whole tensor, until regions are formed: its stored format and
/// its shape. Its operands may have the shapes of blocks.
inline constexpr llvm::StringLiteral decodedFormatAttr = "graph.decoded_format";
inline constexpr llvm::StringLiteral decodedShapeAttr = "graph.decoded_shape";

} // namespace sluice::graph
