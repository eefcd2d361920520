#pragma once
// The held-out data of all tasks of a stream, and whether new weights pass a task's gate.

#include "tools/sluice/EvalMetrics.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TaskFile.h"

namespace sluice::cli {

/// Figures on every task, with the weights of one moment.
struct TaskRow {
  std::vector<double> values; // of the metric
  std::vector<Json> figures;  // all of them
};

class TaskEvaluation {
public:
  /// Opens the data of all tasks, and refuses gates on figures that there are none of.
  static Result<TaskEvaluation> open(const Session &session,
                                     const std::vector<TaskFile> &tasks,
                                     const std::vector<std::string> &extraMetrics);

  /// `asked`, or accuracy, or else loss.
  Result<std::string> chooseMetric(const std::string &asked) const;
  Result<TaskRow> run(Session &session, const std::string &metric);

private:
  std::vector<std::unique_ptr<BatchSource>> sources;
  std::optional<EvalMetrics> metrics;
};

/// Whether the gate of task `index` lets the new weights through; its figures go into the
/// report.
Result<bool> isAccepted(const TaskFile &task, size_t index, const TaskRow &before,
                        const TaskRow &after, const std::string &metric, Json &report);

} // namespace sluice::cli
