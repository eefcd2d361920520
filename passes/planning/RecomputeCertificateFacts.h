#pragma once
// What the checkers of RecomputeCertificate.h read off a problem, on their own.

#include "passes/planning/Recompute.h"

#include <algorithm>
#include <map>

namespace sluice {

class StepFacts {
public:
  explicit StepFacts(const RecomputeProblem &problem) : problem(problem) {
    writer.assign(problem.values.size(), -1);
    first = int32_t(problem.ops.size());
    for (int32_t o = 0; o < int32_t(problem.ops.size()); ++o) {
      if (problem.ops[o].backward)
        first = std::min(first, o);
      for (int32_t v : problem.ops[o].outputs)
        writer[v] = o;
    }
  }

  int64_t bytes(int32_t v) const {
    int64_t a = problem.alignBytes;
    return (problem.values[v].sizeBytes + a - 1) / a * a;
  }
  int64_t workspace(int32_t o) const {
    int64_t a = problem.alignBytes;
    return (problem.ops[o].workspaceBytes + a - 1) / a * a;
  }
  bool forwardOp(int32_t o) const { return o < first; }
  bool forward(int32_t v) const { return writer[v] >= 0 && forwardOp(writer[v]); }
  bool mayRunAgain(int32_t o) const {
    if (!forwardOp(o) || !problem.ops[o].recomputable)
      return false;
    const auto &outs = problem.ops[o].outputs;
    return std::none_of(outs.begin(), outs.end(),
                        [&](int32_t v) { return problem.values[v].keep; });
  }
  /// Bytes that outputs of `o` can share at most with inputs of which `dies` holds.
  template <typename Dies> int64_t shared(int32_t o, Dies dies) const {
    std::map<int32_t, int64_t> most; // by output
    for (auto [in, out] : problem.ops[o].inPlace)
      if (dies(in))
        most[out] = std::max(most[out], std::min(bytes(in), bytes(out)));
    int64_t sum = 0;
    for (auto [out, size] : most)
      sum += size;
    return sum;
  }
  double onceUs() const {
    double us = 0;
    for (const auto &op : problem.ops)
      us += op.costUs;
    return us;
  }

  const RecomputeProblem &problem;
  std::vector<int32_t> writer; // by value, -1: preexisting
  int32_t first = 0;           // backward operation
};

} // namespace sluice
