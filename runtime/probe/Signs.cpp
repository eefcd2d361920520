#include "runtime/probe/Signs.h"

namespace sluice {

// What tells draws of different purpose under one seed apart: the last counter word.
constexpr uint32_t signPurpose = 0x51676e73, labelPurpose = 0x4c61626c;

std::array<uint32_t, 4> probeWords(uint64_t seed, std::array<uint32_t, 4> counter) {
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                 static_cast<uint32_t>(seed >> 32)};
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

double uniformOf(uint64_t seed, uint64_t sample, uint64_t row) {
  auto words =
      probeWords(seed, {static_cast<uint32_t>(row), static_cast<uint32_t>(sample),
                        static_cast<uint32_t>(sample >> 32), labelPurpose});
  uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

float Signs::of(uint64_t element) {
  if (element / 128 != counter) {
    counter = element / 128;
    words =
        probeWords(seed, {static_cast<uint32_t>(counter), draw, parameter, signPurpose});
  }
  uint32_t bit = words[element % 128 / 32] >> (element % 32) & 1;
  return bit ? 1.0f : -1.0f;
}

} // namespace sluice
