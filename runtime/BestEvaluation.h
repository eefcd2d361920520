#pragma once
// The best value of a metric over the evaluations of a run, kept beside its checkpoints
// so that a resumed run goes on judging where it stopped.

#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Loss and perplexity are better when lower, all else when higher.
bool isHigherBetter(std::string_view metric);

class BestEvaluation {
public:
  explicit BestEvaluation(std::string metric) : metricName(std::move(metric)) {}

  /// Whether `value` is better than all before it; one that is not a number never is.
  bool add(double value, int64_t updates);

  const std::string &metric() const { return metricName; }
  const std::optional<double> &value() const { return best; }
  int64_t updates() const { return bestUpdates; } // of the best
  int64_t evaluationsSince() const { return since; }

  /// Written whole or not at all. Reading where there is no file changes nothing; a file
  /// of another metric is refused.
  Status save(const std::string &path) const;
  Status load(const std::string &path);

private:
  std::string metricName;
  std::optional<double> best;
  int64_t bestUpdates = 0, since = 0;
};

} // namespace sluice
