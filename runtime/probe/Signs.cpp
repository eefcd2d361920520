#include "runtime/probe/Signs.h"

#include "kernels/Philox.h"

namespace sluice {

// What tells draws of different purpose under one seed apart: the last counter word.
constexpr uint32_t signPurpose = 0x51676e73, labelPurpose = 0x4c61626c;

double uniformOf(uint64_t seed, uint64_t sample, uint64_t row) {
  auto words = philox({static_cast<uint32_t>(row), static_cast<uint32_t>(sample),
                       static_cast<uint32_t>(sample >> 32), labelPurpose},
                      philoxKey(seed));
  uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

float Signs::of(uint64_t element) {
  if (element / 128 != counter) {
    counter = element / 128;
    words = philox({static_cast<uint32_t>(counter), draw, parameter, signPurpose},
                   philoxKey(seed));
  }
  uint32_t bit = words[element % 128 / 32] >> (element % 32) & 1;
  return bit ? 1.0f : -1.0f;
}

} // namespace sluice
