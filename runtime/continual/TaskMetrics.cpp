#include "runtime/continual/TaskMetrics.h"

#include <algorithm>

namespace sluice {

std::optional<double> averageFigure(const TaskMatrix &matrix) {
  if (matrix.empty())
    return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i < matrix.size(); ++i)
    sum += matrix.back()[i];
  return sum / static_cast<double>(matrix.size());
}

std::optional<double> backwardTransfer(const TaskMatrix &matrix) {
  if (matrix.size() < 2)
    return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i + 1 < matrix.size(); ++i)
    sum += matrix.back()[i] - matrix[i][i];
  return sum / static_cast<double>(matrix.size() - 1);
}

std::optional<TaskChange> changeOf(const TaskMatrix &matrix, size_t task) {
  if (matrix.size() < 2 || task >= matrix.back().size())
    return std::nullopt;
  TaskChange change{matrix[0][task], matrix.back()[task]};
  for (size_t t = 1; t + 1 < matrix.size(); ++t)
    change.best = std::max(change.best, matrix[t][task]);
  return change;
}

std::optional<double> meanForgetting(const TaskMatrix &matrix) {
  if (matrix.size() < 2)
    return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i + 1 < matrix.size(); ++i) {
    TaskChange change = *changeOf(matrix, i);
    sum += change.best - change.last;
  }
  return sum / static_cast<double>(matrix.size() - 1);
}

} // namespace sluice
