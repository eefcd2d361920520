#pragma once
// Heads that have more classes than the checkpoint they go on from: rows (or columns) of
// old classes are kept, with their moments, anchors and importances; new ones begin as
// the plan says, with importance 0.

#include "runtime/StateTransfer.h"

#include <optional>

namespace sluice {

/// The dimension along which the plan's tensor has more than the file's, all else alike:
/// same element type, no other form in which it is stored, whole in the file.
std::optional<size_t> grownDimension(const StateSource &source);

/// Copies what the file has into the front of the grown dimension.
void copyGrown(Session &session, const StateSource &source, size_t dimension,
               const SafetensorsFile &file);

/// "'param/head.weight' has grown from [5, 64] to [10, 64]".
std::string growthText(const StateSource &source);

} // namespace sluice
