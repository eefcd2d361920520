#pragma once
// The values of a test vector, and its gradient against differences.

#include "tests/frontend/VectorCases.h"

#include <set>

namespace sluice::test {

struct VectorOutcome {
  bool inScope = true, passed = false;
  std::string reason;
};
VectorOutcome checkVector(const VectorCase &test);
/// Cases of a folder or file whose name has `only` in it.
std::vector<VectorCase> readCases(const std::filesystem::path &data,
                                  const std::string &only);

struct GradientOutcome {
  enum Kind {
    Checked, // agrees with central differences
    Zero,    // no result depends smoothly on an operand, and differences say so too
    Missing, // an operation has no gradient
    Wrong,
    Skipped // does not import, or is too large
  } kind = Skipped;
  std::string detail;
  std::set<std::string> operations; // of the imported function, without constants
};

GradientOutcome checkVectorGradient(const VectorCase &test);

/// Operands by attempt: 0 none fixed, 1 the integers, 2 all (shapes, axes and lengths
/// that are inputs of a vector are constants of real models).
void fixValues(const VectorSet &vector, int attempt, ImportOptions &options);

} // namespace sluice::test
