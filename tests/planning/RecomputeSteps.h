#pragma once
// Training steps for the tests of recompute planning: known networks at the level of
// operations with roofline costs of an A100, and random graphs.

#include "passes/planning/Recompute.h"

#include <cstdint>
#include <string>

namespace sluice::testing {

struct DecoderShape {
  int64_t layers = 12, width = 768, heads = 12, batch = 8, sequence = 1024;
  int64_t vocabulary = 50257;
};

/// Matrix products, biases, flash attention, statistics of the normalisation, GELU: 14
/// operations per layer forward.
RecomputeProblem decoderStep(const DecoderShape &shape);
RecomputeProblem resnet50Step(int64_t batch);
RecomputeProblem mobilenetStep(int64_t batch);

/// A random step of at most `ops` operations, with several results and readers, pinned
/// operations, workspaces, outputs.
RecomputeProblem randomStep(uint32_t seed, int32_t ops);

} // namespace sluice::testing
