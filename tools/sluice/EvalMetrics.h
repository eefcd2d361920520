#pragma once
// Metrics of an evaluation from the plan's logits and the batch's labels, as JSON and
// text.

#include "runtime/Trainer.h"
#include "runtime/data/Metrics.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// Figures asked for beside the usual ones: --metric top_k=3, recall_at_precision=0.9,
/// recall_at_fpr=0.01.
struct ExtraMetrics {
  std::optional<int64_t> topK;
  std::vector<double> precisions, falsePositiveRates;
};
Result<ExtraMetrics> parseMetrics(const std::vector<std::string> &texts);
/// Adds --metric.
void addMetricOption(CLI::App *app, std::vector<std::string> &texts);

class EvalMetrics {
public:
  /// For the loss kinds with classes (cross_entropy, nll, bce_with_logits); for others
  /// only the loss is reported.
  static Result<EvalMetrics> create(const Plan &plan, const ExtraMetrics &extra = {});

  /// After each batch of an evaluation.
  Status add(const Session &session, const Batch &batch);
  /// The figures since the last finish; starts anew.
  Json finish(const EvalReport &report);
  /// "loss 0.31, accuracy 0.91, ..."
  static std::string text(const Json &figures);
  /// Refuses a name that no evaluation of this plan has a figure of, before anything
  /// runs.
  Status checkName(const std::string &name) const;
  /// One of them by name.
  static Result<double> figure(const Json &figures, const std::string &name);

private:
  void addTwoClassFigures(Json &out) const;

  ExtraMetrics extra;
  MetricsOptions options;
  std::optional<Metrics> metrics;
  std::string logits;
  size_t labelsIndex = 0;
  InputSpec labels; // of the bucket
  uint32_t bucket = 0;
  std::vector<int64_t> converted;
};

} // namespace sluice::cli
