#pragma once
// What is behind the opaque handles of the C API.

#include "runtime/Session.h"
#include "runtime/continual/Fisher.h"
#include "runtime/continual/TaskMasks.h"
#include "runtime/include/sluice/sluice.h"

#include <exception>
#include <string>

struct sluice_plan {
  sluice::PlanPtr plan;
};

struct sluice_session {
  std::unique_ptr<sluice::Session> session;
  std::unique_ptr<sluice::FisherEstimate> fisher; // under way
  std::unique_ptr<sluice::TaskView> view;         // gone before the session is
  std::string error;
};

struct sluice_comm {
  std::unique_ptr<sluice::Communicator> end;
};

namespace sluice {

/// Remembers the reason for sluice_last_error() of this thread and gives the code.
sluice_status report(const Status &status);

/// Runs `body` (giving a Status); memory that runs out while messages are built becomes a
/// status too.
template <class Body> Status guarded(Body body) {
  try {
    return body();
  } catch (const std::exception &error) {
    return Status{StatusCode::doesNotFit, error.what()};
  }
}

/// Runs `body(session)` and keeps its reason with the handle.
template <class Body> sluice_status with(sluice_session *handle, Body body) {
  if (!handle)
    return report(Status::usage("the session is null"));
  Status status = guarded([&] { return body(*handle->session); });
  handle->error = std::move(status.message);
  return static_cast<sluice_status>(status.code);
}

/// Copies a result to the caller, who may not want it.
void fill(sluice_step_result *out, const StepResult &result);

/// An input or output, as the caller sees it.
sluice_tensor_info describePort(const fbs::Port &port);

} // namespace sluice
