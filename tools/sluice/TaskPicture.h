#pragma once
// Pictures of what a sequence of tasks has left of each of them.

#include "runtime/continual/TaskMetrics.h"

#include <string>
#include <vector>

namespace sluice::cli {

/// Rows: after each task; columns: on each task. Darker is higher.
std::string taskHeatMap(const TaskMatrix &matrix, const std::vector<std::string> &tasks,
                        const std::string &metric);
/// A line per task over the tasks learned.
std::string taskCurves(const TaskMatrix &matrix, const std::vector<std::string> &tasks,
                       const std::string &metric);

} // namespace sluice::cli
