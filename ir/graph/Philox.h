#pragma once
// The scalar reference of `graph.random_uniform`.

#include "kernels/Philox.h"

namespace sluice::graph {

using sluice::philox;
using sluice::PhiloxCounter;
using sluice::PhiloxKey;

/// What one random number of a training run is keyed by. Words are the low 32 bits.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t update = 0; // updates done when the micro-batch runs
  uint64_t sample = 0; // global index of the sample
  uint64_t id = 0;     // stable id of the operation
};

/// The uniform number in [0, 1) of `element` within its sample: 24 bits, so exact in f32.
inline float philoxUniform(const RandomKey &key, uint64_t element) {
  PhiloxCounter words =
      philox({static_cast<uint32_t>(element / 4), static_cast<uint32_t>(key.sample),
              static_cast<uint32_t>(key.update), static_cast<uint32_t>(key.id)},
             philoxKey(key.seed));
  return static_cast<float>(words[element % 4] >> 8) * 0x1p-24f;
}

} // namespace sluice::graph
