#pragma once
// Tasks of a plan with masks (`continual.masks`): which one trains, what it keeps, and
// evaluation as one that has been learned. State is that of passes/TaskMasks.h;
// "task/cursor" has the task that trains (from 1; 0: none), its phase, the update it has
// begun with, and a bit for each learned one.
//
//   begin ── updates ── prune ── updates ── end          packnet
//   begin ── updates ── end                              supermask
//
// After `end` the outputs as that task stay bit for bit, whatever is learned behind it.

#include "runtime/Session.h"

#include <memory>

namespace sluice {

bool hasMasks(const Plan &plan);

/// From 1. Refused, with the names there are, where the plan has no such task.
Result<int64_t> taskNamed(const Plan &plan, std::string_view name);

class TaskMasks {
public:
  enum class Phase : int64_t { none = 0, training, retraining, ended };
  struct Cursor {
    int64_t task = 0;
    Phase phase = Phase::none;
    int64_t begin = 0; // updates
    uint64_t learned = 0;
    bool hasLearned(int64_t of) const { return (learned >> (of - 1)) & 1; }
  };

  /// Refused where the plan has no masks.
  static Result<TaskMasks> open(Session &session);

  Cursor cursor() const;

  /// Goes on with the task where it trains already; else moments begin anew, and so do
  /// elements that are free. Refused where it has been learned, another has not ended,
  /// or nothing is free.
  Status begin(int64_t task);
  /// packnet: the task keeps the largest magnitudes among what is free, the others become
  /// 0. Nothing to do else.
  Status prune();
  /// Keeps the task's mask and what is its own.
  Status end();

  /// Prunes when the share of a task's updates is done, and ends it with the last. After
  /// every update; `target`: the task's last.
  Status afterUpdate(int64_t updates, int64_t target);

private:
  explicit TaskMasks(Session &session);
  std::string nameOf(int64_t task) const;
  void put(const Cursor &cursor);
  void setScalar(const char *name, int64_t value);
  void clearMoments();
  void copyOwn(int64_t task, bool toTask);
  Result<uint64_t> keepLargest(int64_t task);

  Session *session;
  const fbs::Masks *table;
  bool isPacked;
};

/// Evaluation as one task: until it is gone the session's programs see that task's
/// weights, then all is as before. The one that trains is seen as it is.
class TaskView {
public:
  static Result<std::unique_ptr<TaskView>> enter(Session &session, int64_t task);
  ~TaskView();
  TaskView(const TaskView &) = delete;
  TaskView &operator=(const TaskView &) = delete;

private:
  explicit TaskView(Session &session) : session(session) {}
  void replace(const std::string &name, std::span<const uint8_t> bytes);

  Session &session;
  std::vector<std::pair<std::string, std::vector<uint8_t>>> before;
};

} // namespace sluice
