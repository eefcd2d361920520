#include "tools/sluice/TaskOptions.h"

namespace sluice::cli {

void addTaskOption(CLI::App *app, std::string &task, const char *help) {
  app->add_option("--task", task, help);
}

Status checkTask(const Plan &plan, const std::string &task) {
  if (!task.empty()) {
    auto index = taskNamed(plan, task);
    return index ? Status::success() : index.status();
  }
  if (!hasMasks(plan))
    return Status::success();
  return Status::usage("the plan trains one task of 'continual.masks' at a time: say "
                       "which, --task NAME (" +
                       taskNamed(plan, task).status().message + ")");
}

void TaskTraining::attach(Session &session, const std::string &task,
                          TrainOptions &options) {
  if (task.empty())
    return;
  options.onStart = [onStart = options.onStart, task](Session &starting) {
    Status status = onStart ? onStart(starting) : Status::success();
    auto index = taskNamed(starting.plan(), task);
    auto masks = TaskMasks::open(starting);
    if (status.ok() && !(index && masks))
      status = index ? masks.status() : index.status();
    return status.ok() ? masks->begin(*index) : status;
  };
  options.onUpdate = [this, &session,
                      onUpdate = options.onUpdate](const TrainProgress &now) {
    bool goesOn = !onUpdate || onUpdate(now);
    auto masks = TaskMasks::open(session);
    failure = masks ? masks->afterUpdate(now.updates, now.target) : masks.status();
    return goesOn && failure.ok();
  };
}

Result<std::unique_ptr<TaskView>> viewTask(Session &session, const std::string &task) {
  if (task.empty())
    return std::unique_ptr<TaskView>();
  auto index = taskNamed(session.plan(), task);
  if (!index)
    return index.status();
  return TaskView::enter(session, *index);
}

} // namespace sluice::cli
