#pragma once
// Masks of attention: those that are known are recognised as causal, the others become
// one addend of the scores.

#include "ir/graph/GraphBuilder.h"

#include <map>
#include <optional>
#include <tuple>

namespace sluice {

struct AttentionMatch;
struct AttentionMask {
  mlir::Value value;             ///< f32 [B|1, H|1, Tq|1, Tk|1]; null without
  std::optional<int64_t> causal; ///< a query sees the keys up to its own number plus this
};

/// What masks that follow from constants say: all layers ask about the same few, which
/// may be large. Good while no operation is erased.
struct KnownMasks {
  struct Rule {
    bool seesAll = false;
    std::optional<int64_t> causal;
    double fill = 0; ///< what hidden elements are: -inf only where all of them are
  };
  /// By value, whether and where it selects, bits of what, queries and keys.
  std::map<std::tuple<void *, bool, bool, uint64_t, int64_t, int64_t>, Rule> rules;
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
