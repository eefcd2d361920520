#include "passes/planning/RecomputeDrop.h"

#include <algorithm>

namespace sluice {
namespace {

struct Candidate {
  double us;
  int32_t run;
};

/// Further runs, the dearest first; of equal ones the latest.
std::vector<Candidate> furtherRuns(const RecomputeGraph &graph,
                                   const std::vector<int32_t> &sequence) {
  std::vector<char> hasRun(graph.opCount, 0);
  std::vector<Candidate> list;
  for (size_t i = 0; i < sequence.size(); ++i) {
    if (hasRun[sequence[i]])
      list.push_back({graph.again[sequence[i]], int32_t(i)});
    hasRun[sequence[i]] = 1;
  }
  std::sort(list.begin(), list.end(), [](const Candidate &a, const Candidate &b) {
    return a.us != b.us ? a.us > b.us : a.run > b.run;
  });
  return list;
}

} // namespace

std::vector<int32_t> dropRuns(const RecomputeGraph &graph, ScheduleSimulator &simulator,
                              std::vector<int32_t> sequence, int64_t targetBytes,
                              int simulations) {
  std::vector<Candidate> candidates = furtherRuns(graph, sequence);
  std::vector<char> left(sequence.size(), 1);
  std::vector<int32_t> tried;
  double us = simulator.simulate(sequence).timeUs;
  size_t step = 1;
  for (size_t i = 0; i < candidates.size() && simulations > 0; --simulations) {
    size_t count = std::min(step, candidates.size() - i);
    for (size_t k = i; k < i + count; ++k)
      left[candidates[k].run] = 0;
    tried.clear();
    for (size_t k = 0; k < sequence.size(); ++k)
      if (left[k])
        tried.push_back(sequence[k]);
    ScheduleCost cost = simulator.simulate(tried);
    if (cost.peakBytes <= targetBytes && cost.timeUs <= us) {
      us = cost.timeUs;
      i += count;
      step = 2 * count;
      continue;
    }
    for (size_t k = i; k < i + count; ++k)
      left[candidates[k].run] = 1;
    i += count == 1;
    step = std::max<size_t>(1, count / 2);
  }
  tried.clear();
  for (size_t k = 0; k < sequence.size(); ++k)
    if (left[k])
      tried.push_back(sequence[k]);
  return tried;
}

} // namespace sluice
