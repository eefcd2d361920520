#pragma once
// Metrics of an evaluation from the plan's logits and the batch's labels, as JSON and
// text.

#include "runtime/Trainer.h"
#include "runtime/data/Metrics.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

class EvalMetrics {
public:
  /// For the loss kinds with classes (cross_entropy, nll, bce_with_logits); for others
  /// only the loss is reported.
  static EvalMetrics create(const Plan &plan);

  /// After each batch of an evaluation.
  Status add(const Session &session, const Batch &batch);
  /// The figures since the last finish; starts anew.
  Json finish(const EvalReport &report);
  /// "loss 0.31, accuracy 0.91, ..."
  static std::string text(const Json &figures);

private:
  MetricsOptions options;
  std::optional<Metrics> metrics;
  std::string logits;
  size_t labelsIndex = 0;
  InputSpec labels;
  std::vector<int64_t> converted;
};

} // namespace sluice::cli
