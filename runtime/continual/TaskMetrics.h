#pragma once
// What a sequence of tasks has left of each of them: the matrix A, where A[t][i] is a
// figure (the accuracy) on task i after task t was learned, and its summaries (Lopez-Paz
// and Ranzato 2017; Chaudhry et al. 2018). Higher is better.

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice {

using TaskMatrix = std::vector<std::vector<double>>; ///< a row per task learned

/// Mean of the last row over the tasks learned. Nothing without a row.
std::optional<double> averageFigure(const TaskMatrix &matrix);
/// Mean over the tasks before the last of A[last][i] - A[i][i]. Nothing below two rows.
std::optional<double> backwardTransfer(const TaskMatrix &matrix);
/// Mean over the tasks before the last of the best A[t][i] before the last row, less
/// A[last][i]. Nothing below two rows.
std::optional<double> meanForgetting(const TaskMatrix &matrix);
/// The best figure of a task over all rows but the last, and the last one.
struct TaskChange {
  double best = 0, last = 0;
};
std::optional<TaskChange> changeOf(const TaskMatrix &matrix, size_t task);

} // namespace sluice
