// The C API: sessions.

#include "runtime/CApiHandles.h"
#include "runtime/Checkpoint.h"

#include <algorithm>

using namespace sluice;

static Status readOptions(const sluice_session_options &given, SessionOptions &options) {
  if (!given.allocate != !given.release)
    return Status::usage("the allocator needs both 'allocate' and 'release'");
  if (given.threads < 0)
    return Status::usage("option 'threads' is negative");
  options.threads = given.threads;
  if (given.level == SLUICE_LEVEL_V3)
    options.level = FeatureLevel::V3;
  else if (given.level == SLUICE_LEVEL_V4)
    options.level = FeatureLevel::V4;
  else if (given.level == SLUICE_LEVEL_AVX512_BF16)
    options.level = FeatureLevel::Dots;
  else if (given.level == SLUICE_LEVEL_AMX)
    options.level = FeatureLevel::Amx;
  else if (given.level != SLUICE_LEVEL_BEST)
    return Status::usage("option 'level' is " + std::to_string(given.level) +
                         ", expected 0, 3, 4, 5 or 6");
  options.weightsPath = given.weights ? given.weights : "";
  options.state = {given.state_memory, given.state_bytes};
  options.step = {given.step_memory, given.step_bytes};
  options.hostState = {given.host_state_memory, given.host_state_bytes};
  options.hostStep = {given.host_step_memory, given.host_step_bytes};
  options.variant = given.variant;
  options.communicator = given.comm ? given.comm->end.get() : nullptr;
  options.allocator = {given.allocate, given.release, given.allocator_user};
  options.inputs.rejectNonFinite = !given.accept_non_finite;
  if (given.log)
    options.log = [log = given.log, user = given.log_user](const std::string &line) {
      log(line.c_str(), user);
    };
  return Status::success();
}

sluice_status sluice_session_create(sluice_plan *plan,
                                    const sluice_session_options *given,
                                    sluice_session **session) {
  return report(guarded([&] {
    if (!plan || !session)
      return Status::usage("argument 'plan' or 'session' is null");
    *session = nullptr;
    SessionOptions options;
    if (given)
      if (Status status = readOptions(*given, options); !status.ok())
        return status;
    auto made = Session::create(plan->plan, std::move(options));
    if (!made)
      return made.status();
    *session = new sluice_session{std::move(*made), {}, {}, {}};
    return Status::success();
  }));
}

void sluice_session_destroy(sluice_session *session) { delete session; }

const char *sluice_session_error(const sluice_session *session) {
  return session ? session->error.c_str() : "the session is null";
}

void sluice::fill(sluice_step_result *out, const StepResult &result) {
  if (!out)
    return;
  out->loss_sum = result.lossSum;
  out->loss_count = result.lossCount;
  out->window_loss_sum = result.windowLossSum;
  out->window_loss_count = result.windowLossCount;
  out->updated = result.updated;
  out->has_grad_norm = result.gradNorm.has_value();
  out->grad_norm = result.gradNorm.value_or(0.0f);
  out->skipped = result.skipped;
  out->loss_scale = result.lossScale.value_or(1.0f);
}

/// The batch's list of pointers is kept with the thread so that steps do not allocate.
static Status makeBatch(const Session &session, const char *program,
                        const void *const *inputs, size_t count, int64_t samples,
                        int64_t firstSample, Batch *&batch) {
  static thread_local Batch kept;
  // Pointers behind the caller's array must not be read, so the count is looked at first.
  const fbs::Program *found = session.plan().program(program);
  if (found && count != sizeOf(found->inputs()))
    return Status::usage("program '" + std::string(program) + "' has " +
                         std::to_string(sizeOf(found->inputs())) + " inputs, " +
                         std::to_string(count) + " are given");
  if (!inputs && count > 0)
    return Status::usage("argument 'inputs' is null");
  kept.data.assign(inputs, inputs + (found ? count : 0));
  kept.count = samples;
  kept.firstSample = firstSample;
  batch = &kept;
  return Status::success();
}

sluice_status sluice_session_step(sluice_session *session, const void *const *inputs,
                                  size_t count, int64_t samples,
                                  sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Batch *batch = nullptr;
    Status status = makeBatch(self, self.plan().trainingProgram(), inputs, count, samples,
                              self.nextSample(), batch);
    if (status.ok())
      status = self.step(*batch, result);
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_flush(sluice_session *session, sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Status status = self.flush(result);
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_apply_pending(sluice_session *session) {
  return with(session, [&](Session &self) { return self.applyPending(); });
}

sluice_status sluice_session_eval(sluice_session *session, const void *const *inputs,
                                  size_t count, int64_t samples,
                                  sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Batch *batch = nullptr;
    Status status = makeBatch(self, "eval", inputs, count, samples, 0, batch);
    if (status.ok())
      status = self.eval(*batch, result);
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_probe(sluice_session *session, const void *const *inputs,
                                   size_t count, int64_t samples,
                                   sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Batch *batch = nullptr;
    Status status = makeBatch(self, "probe", inputs, count, samples, 0, batch);
    if (status.ok())
      status = self.probe(*batch, result);
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_infer(sluice_session *session, const void *const *inputs,
                                   size_t count, int64_t samples) {
  return with(session, [&](Session &self) {
    Batch *batch = nullptr;
    Status status = makeBatch(self, "infer", inputs, count, samples, 0, batch);
    return status.ok() ? self.infer(*batch) : status;
  });
}

sluice_status sluice_session_output(sluice_session *session, const char *name,
                                    const void **data, size_t *bytes) {
  return with(session, [&](Session &self) {
    if (!name || !data || !bytes)
      return Status::usage("argument 'name', 'data' or 'bytes' is null");
    auto view = self.output(name);
    if (!view)
      return view.status();
    *data = view->data;
    *bytes = view->bytes;
    return Status::success();
  });
}

sluice_status sluice_session_output_shape(sluice_session *session, const char *name,
                                          int64_t *shape, size_t capacity, size_t *rank) {
  return with(session, [&](Session &self) {
    if (!name || !rank || (!shape && capacity > 0))
      return Status::usage("argument 'name', 'shape' or 'rank' is null");
    auto found = self.outputShape(name);
    if (!found)
      return found.status();
    *rank = found->size();
    if (found->size() > capacity)
      return Status::usage("output '" + std::string(name) + "' has rank " +
                           std::to_string(found->size()) + ", there is room for " +
                           std::to_string(capacity));
    std::copy(found->begin(), found->end(), shape);
    return Status::success();
  });
}

int64_t sluice_session_updates(const sluice_session *session) {
  return session ? session->session->updates() : 0;
}

int64_t sluice_session_samples(const sluice_session *session) {
  return session ? session->session->samples() : 0;
}

sluice_status sluice_session_read_state(sluice_session *session, const char *name,
                                        void *data, size_t bytes) {
  return with(session, [&](Session &self) {
    if (!name || (!data && bytes > 0))
      return Status::usage("argument 'name' or 'data' is null");
    return self.readState(name, data, bytes);
  });
}

sluice_status sluice_session_write_state(sluice_session *session, const char *name,
                                         const void *data, size_t bytes) {
  return with(session, [&](Session &self) {
    if (!name || (!data && bytes > 0))
      return Status::usage("argument 'name' or 'data' is null");
    return self.writeState(name, data, bytes);
  });
}

sluice_status sluice_session_read_parameter(sluice_session *session, const char *name,
                                            float *values, size_t count) {
  return with(session, [&](Session &self) {
    if (!name || (!values && count > 0))
      return Status::usage("argument 'name' or 'values' is null");
    return self.readParameter(name, {values, count});
  });
}

sluice_status sluice_session_write_parameter(sluice_session *session, const char *name,
                                             const float *values, size_t count) {
  return with(session, [&](Session &self) {
    if (!name || (!values && count > 0))
      return Status::usage("argument 'name' or 'values' is null");
    return self.writeParameter(name, {values, count});
  });
}

sluice_status sluice_session_get_lr(sluice_session *session, const char *group,
                                    double *lr) {
  return with(session, [&](Session &self) {
    if (!lr)
      return Status::usage("argument 'lr' is null");
    auto rate = self.rate(group ? group : "");
    if (!rate)
      return rate.status();
    *lr = *rate;
    return Status::success();
  });
}

sluice_status sluice_session_set_lr(sluice_session *session, const char *group,
                                    double lr) {
  return with(session, [&](Session &self) {
    if (!group)
      return Status::usage("argument 'group' is null");
    return self.setRate(group, lr);
  });
}

sluice_status sluice_session_get_hyper(sluice_session *session, const char *group,
                                       const char *name, double *value) {
  return with(session, [&](Session &self) {
    if (!name || !value)
      return Status::usage("argument 'name' or 'value' is null");
    auto current = self.hyper(group ? group : "", name);
    if (!current)
      return current.status();
    *value = *current;
    return Status::success();
  });
}

sluice_status sluice_session_set_hyper(sluice_session *session, const char *group,
                                       const char *name, double value) {
  return with(session, [&](Session &self) {
    if (!name)
      return Status::usage("argument 'name' is null");
    return self.setHyper(group ? group : "", name, value);
  });
}

static sluice_status setFrozen(sluice_session *session, const char *group, bool frozen) {
  return with(session, [&](Session &self) {
    if (!group)
      return Status::usage("argument 'group' is null");
    return self.setFrozen(group, frozen);
  });
}

sluice_status sluice_session_freeze(sluice_session *session, const char *group) {
  return setFrozen(session, group, true);
}

sluice_status sluice_session_unfreeze(sluice_session *session, const char *group) {
  return setFrozen(session, group, false);
}

sluice_status sluice_session_is_frozen(sluice_session *session, const char *group,
                                       bool *frozen) {
  return with(session, [&](Session &self) {
    if (!group || !frozen)
      return Status::usage("argument 'group' or 'frozen' is null");
    auto current = self.frozen(group);
    if (!current)
      return current.status();
    *frozen = *current;
    return Status::success();
  });
}

sluice_status sluice_session_load_weights(sluice_session *session, const char *path) {
  return with(session, [&](Session &self) {
    if (!path)
      return Status::usage("argument 'path' is null");
    return self.loadWeights(path);
  });
}

sluice_status sluice_session_save(sluice_session *session, const char *folder) {
  return with(session, [&](Session &self) {
    if (!folder)
      return Status::usage("argument 'folder' is null");
    auto path = saveCheckpoint(self, folder);
    return path ? Status::success() : path.status();
  });
}

sluice_status sluice_session_load(sluice_session *session, const char *folder) {
  return with(session, [&](Session &self) {
    if (!folder)
      return Status::usage("argument 'folder' is null");
    auto info = loadCheckpoint(self, folder);
    if (!info)
      return info.status();
    for (const std::string &note : info->notes)
      self.log(note);
    return Status::success();
  });
}
