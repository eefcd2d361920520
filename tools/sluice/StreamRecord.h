#pragma once
// What FOLDER/stream.json says of a sequence of tasks: what is done, and how it went.

#include "runtime/continual/TaskMetrics.h"
#include "tools/sluice/Cli.h"

#include <string>
#include <vector>

namespace sluice::cli {

struct StreamRecord {
  std::vector<std::string> tasks; // done, in order
  std::string metric;
  TaskMatrix matrix;         // a row per task done, a column per task of the run
  std::vector<Json> reports; // by task done
  std::string checkpoint;    // file in the folder: the state after them; empty: initial
  std::string replay;        // file of the buffer; empty: none yet

  /// Figures that are better when lower count negatively in the summaries, except `acc`.
  Json summary(const std::vector<std::string> &columns) const;
  Status save(const std::string &folder) const;
};

/// Nothing done where there is no record. Refused where `names` do not begin with what is
/// done.
Result<StreamRecord> loadStream(const std::string &folder,
                                const std::vector<std::string> &names);
bool hasStream(const std::string &folder);

} // namespace sluice::cli
