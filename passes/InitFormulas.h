#pragma once
// The formulas of torch.nn.init.

#include "ir/graph/Graph.h"

#include <vector>

namespace sluice {
struct InitRule;

/// How many numbers flow into and out of a unit: what the scale of its weights is chosen
/// by.
struct Fans {
  int64_t in = 1, out = 1;
};
/// A product says itself which dimensions it sums over; all else is PyTorch's
/// [out, in, kernel...]. Of a parameter of rank 2 or more.
Fans fansOf(graph::ParameterOp parameter);

/// True where a formula asks for rank 2 or more.
bool hasFans(const InitRule &rule);

/// Values for an f32 parameter, keyed by seed, name and element.
std::vector<float> drawnValues(graph::ParameterOp parameter, const InitRule &rule,
                               uint64_t seed);

} // namespace sluice
