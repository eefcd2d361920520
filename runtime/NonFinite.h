#pragma once
// Which launch of a program is the first to give values that are infinite or NaN.

#include "runtime/Arenas.h"
#include "runtime/DType.h"
#include "runtime/Plan.h"

#include <cstddef>
#include <optional>
#include <string>

namespace sluice {

/// Values of a tensor that are not finite. Those of -infinity stand apart: masks are made
/// of them.
struct NonFiniteCount {
  size_t wrong = 0;         // NaN and +infinity
  size_t minusInfinity = 0; // all of a type that is no float: 0
};
NonFiniteCount countNonFinite(DType type, const uint8_t *data, size_t bytes);

/// Watches a program that runs: to be told of every launch that is done.
class NonFiniteWatch {
public:
  NonFiniteWatch(const fbs::Program &program, const Arenas &arenas)
      : program(program), arenas(arenas) {}
  void launched(uint32_t launch);
  /// "it began in 'fc1/Gemm' (contract), ..."; empty where all values are finite.
  std::string text() const;

private:
  struct Sighting {
    uint32_t launch = 0, buffer = 0;
    size_t count = 0;
  };
  bool touches(const fbs::Launch &launch, const fbs::BufferInfo &buffer) const;
  std::string where(const Sighting &seen) const;

  const fbs::Program &program;
  Arenas arenas;
  std::optional<Sighting> wrong, minusInfinity; // the first of each
};

} // namespace sluice
