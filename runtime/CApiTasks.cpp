// The C API of plans with masks: which task trains, and evaluation as one of them.

#include "runtime/CApiHandles.h"
#include "runtime/continual/TaskMasks.h"

using namespace sluice;

namespace {

/// What `change` does to the masks of a session; not while one is seen as another task.
template <class Fn> sluice_status changeTasks(sluice_session *session, Fn change) {
  return with(session, [&](Session &self) {
    if (session->view)
      return Status::usage("the session is seen as a task: end that first, with "
                           "sluice_session_view_task(session, NULL)");
    auto masks = TaskMasks::open(self);
    return masks ? change(*masks, self) : masks.status();
  });
}

} // namespace

sluice_status sluice_session_begin_task(sluice_session *session, const char *name) {
  return changeTasks(session, [&](TaskMasks &masks, Session &self) {
    if (!name)
      return Status::usage("argument 'name' is null");
    auto task = taskNamed(self.plan(), name);
    return task ? masks.begin(*task) : task.status();
  });
}

sluice_status sluice_session_prune_task(sluice_session *session) {
  return changeTasks(session, [](TaskMasks &masks, Session &) { return masks.prune(); });
}

sluice_status sluice_session_end_task(sluice_session *session) {
  return changeTasks(session, [](TaskMasks &masks, Session &) { return masks.end(); });
}

sluice_status sluice_session_view_task(sluice_session *session, const char *name) {
  return with(session, [&](Session &self) {
    session->view.reset();
    if (!name)
      return Status::success();
    auto task = taskNamed(self.plan(), name);
    if (!task)
      return task.status();
    auto view = TaskView::enter(self, *task);
    if (view)
      session->view = std::move(*view);
    return view ? Status::success() : view.status();
  });
}
