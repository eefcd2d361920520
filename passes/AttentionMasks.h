#pragma once
// Masks of attention: those that are known are recognised as causal, the others become
// one addend of the scores.

#include "ir/graph/GraphBuilder.h"

#include <optional>

namespace sluice {

struct AttentionMatch;
struct AttentionMask {
  mlir::Value value;             ///< f32 [B|1, H|1, Tq|1, Tk|1]; null without
  std::optional<int64_t> causal; ///< a query sees the keys up to its own number plus this
};

/// The number that all elements of a value are, if they are known.
std::optional<double> splatReal(mlir::Value value);

/// What is repeated, or the value itself.
mlir::Value behindBroadcast(mlir::Value value);

/// Whether an addend (and a causal rule) gives the same probabilities as the masks do
/// also where a row sees nothing, and none of them has a gradient.
bool areMasksExact(AttentionMatch &match);

AttentionMask buildMask(graph::GraphBuilder &builder, AttentionMatch &match);

} // namespace sluice
