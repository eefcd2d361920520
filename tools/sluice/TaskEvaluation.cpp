#include "tools/sluice/TaskEvaluation.h"

#include <algorithm>

namespace sluice::cli {

Result<TaskEvaluation> TaskEvaluation::open(const Session &session,
                                            const std::vector<TaskFile> &tasks,
                                            const std::vector<std::string> &names) {
  TaskEvaluation made;
  auto extra = parseMetrics(names);
  if (!extra)
    return extra.status();
  auto metrics = EvalMetrics::create(session.plan(), *extra);
  if (!metrics)
    return metrics.status();
  made.metrics.emplace(std::move(*metrics));
  for (const TaskFile &task : tasks) {
    auto source = openSource(session, "eval", task.evalData, {}, false);
    if (!source) {
      Status status = source.status();
      status.message = "task '" + task.name + "': " + status.message;
      return status;
    }
    made.sources.push_back(std::move(*source));
    if (!task.acceptIf || task.acceptIf->figure == "forgetting")
      continue;
    if (Status status = made.metrics->checkName(task.acceptIf->figure); !status.ok())
      return Status::refused("task '" + task.name + "': 'accept_if': " + status.message);
  }
  return made;
}

Result<std::string> TaskEvaluation::chooseMetric(const std::string &asked) const {
  if (asked.empty())
    return std::string(metrics->checkName("accuracy").ok() ? "accuracy" : "loss");
  if (Status status = metrics->checkName(asked); !status.ok())
    return status;
  return asked;
}

Result<TaskRow> TaskEvaluation::run(Session &session, const std::string &metric) {
  TaskRow row;
  for (auto &source : sources) {
    auto report =
        evaluate(session, *source, [&](const Session &running, const Batch &batch) {
          return metrics->add(running, batch);
        });
    if (!report)
      return report.status();
    Json figures = metrics->finish(*report);
    auto value = EvalMetrics::figure(figures, metric);
    if (!value)
      return value.status();
    row.values.push_back(*value);
    row.figures.push_back(std::move(figures));
  }
  return row;
}

Result<bool> isAccepted(const TaskFile &task, size_t index, const TaskRow &before,
                        const TaskRow &after, const std::string &metric, Json &report) {
  const auto &rule = task.acceptIf;
  if (!rule)
    return true;
  double previous = 0, now = 0;
  if (rule->figure == "forgetting") { // the most that a task before has lost
    const double sign = isHigherBetter(metric) ? 1 : -1;
    for (size_t i = 0; i < index; ++i)
      now = std::max(now, sign * (before.values[i] - after.values[i]));
  } else {
    auto old = EvalMetrics::figure(before.figures[index], rule->figure);
    auto fresh = EvalMetrics::figure(after.figures[index], rule->figure);
    if (!old || !fresh)
      return old ? fresh.status() : old.status();
    previous = *old, now = *fresh;
  }
  bool holds = rule->holds(now, previous);
  report["gate"] = {
      {"rule", rule->text}, {"previous", previous}, {"value", now}, {"accepted", holds}};
  return holds;
}

} // namespace sluice::cli
