#pragma once
// One task of a stream (sluice train --tasks): its data, how long to learn it, and when
// what was learned is kept.

#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

/// FIGURE >= NUMBER, or FIGURE >= previous - NUMBER; also > <= < and +. `previous` is the
/// figure before the task.
struct AcceptRule {
  std::string text, figure, comparison;
  bool isRelative = false;
  double bound = 0;
  bool holds(double value, double previous) const;
};
Result<AcceptRule> parseAcceptRule(const std::string &text);

struct TaskFile {
  std::string name; // default: that of the file
  std::vector<std::string> data, evalData;
  int64_t epochs = 0, steps = 0; // one of them; 0: as the command line says
  std::optional<AcceptRule> acceptIf;
};

/// Reads YAML; refused with the file and what is wrong.
Result<TaskFile> readTaskFile(const std::string &path);
/// "a.yaml,b.yaml", in order; two of one name are refused.
Result<std::vector<TaskFile>> readTaskFiles(const std::vector<std::string> &lists);

} // namespace sluice::cli
