#pragma once
// Random initial values of parameters.

#include "ir/graph/Graph.h"
#include "ir/graph/Philox.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace sluice {

/// Random numbers of one parameter, keyed by seed, name and element alone.
class InitialDraws {
public:
  InitialDraws(uint64_t seed, llvm::StringRef name) : seed(seed) {
    for (char c : name) // FNV-1a
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  /// In [0, 1).
  double uniform(uint64_t element) const {
    graph::PhiloxCounter words = wordsOf(element);
    return unit(words[0], words[1]);
  }
  /// Of mean 0 and variance 1 (Box and Muller).
  double normal(uint64_t element) const {
    graph::PhiloxCounter words = wordsOf(element);
    double radius = std::sqrt(-2 * std::log(1 - unit(words[0], words[1])));
    return radius * std::cos(2 * std::numbers::pi * unit(words[2], words[3]));
  }

private:
  graph::PhiloxCounter wordsOf(uint64_t element) const {
    auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    // The key differs from that of the step's random numbers ("INIT").
    return graph::philox({low(element), low(element >> 32), low(hash), low(hash >> 32)},
                         {low(seed), low(seed >> 32) ^ 0x494e4954u});
  }
  static double unit(uint32_t high, uint32_t low) {
    return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
  }

  uint64_t seed, hash = 0xcbf29ce484222325;
};

/// Large values become a resource: attributes are hashed, and kept for ever.
void setInitialValues(graph::ParameterOp parameter, const std::vector<float> &values);

} // namespace sluice
