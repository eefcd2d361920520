#pragma once
// --task: which task of a plan with masks trains, or is evaluated.

#include "runtime/Trainer.h"
#include "runtime/continual/TaskMasks.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

void addTaskOption(CLI::App *app, std::string &task, const char *help);

/// Refused where one of plan and command line has tasks and the other does not.
Status checkTask(const Plan &plan, const std::string &task);

/// Begins or goes on with the task before the first step, and prunes and ends it in time.
/// It outlives the training; `status` says why it has stopped that.
class TaskTraining {
public:
  void attach(Session &session, const std::string &task, TrainOptions &options);
  const Status &status() const { return failure; }

private:
  Status failure = Status::success();
};

/// Evaluation as the task for as long as the result lives; null without a task.
Result<std::unique_ptr<TaskView>> viewTask(Session &session, const std::string &task);

} // namespace sluice::cli
