#pragma once
// sluice train --tasks: a sequence of tasks from one plan, with an evaluation of all of
// them after each. FOLDER/stream.json says what is done; it is written last, so that a
// run that is killed goes on at the step it had reached, bit for bit.

#include "runtime/replay/ReplayBuffer.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TaskFile.h"

namespace sluice::cli {

struct StreamOptions {
  RunOptions run; // the checkpoint is the stream's folder
  std::vector<TaskFile> tasks;
  std::vector<std::string> metrics; // of evaluations, beside the usual ones
  std::string taskMetric;           // of the matrix; default: accuracy, else loss
  int64_t epochs = 0, steps = 0;    // of tasks that do not say it
  int64_t checkpointEvery = 0;      // inside tasks
  bool resume = false, losses = false;
  std::function<Status(Session &)> onStart;
};

int runStream(const StreamOptions &options, Console &console);

/// What is new alone: the inputs of data, by `fresh` samples a batch (0: the plan's).
Result<std::unique_ptr<BatchSource>> openNew(const Session &session,
                                             const std::vector<std::string> &data,
                                             bool shuffle, int64_t fresh);

/// The source for the training program: from the position on, with samples of the buffer
/// in every batch. A plan without replay needs no buffer, and one with it none at first.
Result<std::unique_ptr<BatchSource>>
openTaskSource(const Session &session, const std::vector<std::string> &data, bool shuffle,
               const ReplayBuffer *buffer, int64_t firstPosition);

} // namespace sluice::cli
