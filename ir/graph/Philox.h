#pragma once
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// the scalar reference of `graph.random_uniform`. A number depends on its key and counter
// alone, never on the order of evaluation.

#include <array>
#include <cstdint>

namespace sluice::graph {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// Ten rounds of the Philox bijection: four random words for one counter.
inline PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t{0xD2511F53u} * counter[0];
    uint64_t second = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

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
             {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return static_cast<float>(words[element % 4] >> 8) * 0x1p-24f;
}

} // namespace sluice::graph
