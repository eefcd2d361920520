// The C API: plans of several shapes, and tensors that bring their own.

#include "runtime/Buckets.h"
#include "runtime/CApiHandles.h"

using namespace sluice;

size_t sluice_plan_bucket_count(const sluice_plan *plan) {
  return plan ? plan->plan->buckets() : 0;
}

static const PlanVariant *bucketOf(const sluice_plan *plan, size_t bucket) {
  return bucket < sluice_plan_bucket_count(plan)
             ? &plan->plan->variant(static_cast<uint32_t>(bucket))
             : nullptr;
}

const char *sluice_plan_bucket(const sluice_plan *plan, size_t bucket) {
  const PlanVariant *found = bucketOf(plan, bucket);
  return found ? found->bucketName.c_str() : nullptr;
}

int64_t sluice_plan_bucket_batch(const sluice_plan *plan, size_t bucket) {
  const PlanVariant *found = bucketOf(plan, bucket);
  return found ? found->batch : 0;
}

static sluice_status bucketPort(const sluice_plan *plan, size_t bucket,
                                const char *program, bool isInput, size_t index,
                                sluice_tensor_info *info) {
  return report(guarded([&] {
    if (!info || !program || !bucketOf(plan, bucket))
      return Status::usage("argument 'info' or 'program' is null, or there is no such "
                           "bucket");
    const fbs::Program *found =
        plan->plan->program(program, static_cast<uint32_t>(bucket));
    const auto *ports = !found ? nullptr : isInput ? found->inputs() : found->outputs();
    if (index >= sizeOf(ports))
      return Status::usage("there is no such program, or it has only " +
                           std::to_string(sizeOf(ports)) +
                           (isInput ? " inputs" : " outputs"));
    *info = describePort(*ports->Get(static_cast<uint32_t>(index)));
    return Status::success();
  }));
}

sluice_status sluice_plan_bucket_input(const sluice_plan *plan, size_t bucket,
                                       const char *program, size_t index,
                                       sluice_tensor_info *info) {
  return bucketPort(plan, bucket, program, true, index, info);
}

sluice_status sluice_plan_bucket_output(const sluice_plan *plan, size_t bucket,
                                        const char *program, size_t index,
                                        sluice_tensor_info *info) {
  return bucketPort(plan, bucket, program, false, index, info);
}

/// Shapes of tensors; the list is kept with the thread so that steps do not allocate.
static Result<std::span<const std::span<const int64_t>>>
shapesOf(const sluice_tensor *tensors, size_t count) {
  static thread_local std::vector<std::span<const int64_t>> kept;
  if (!tensors && count > 0)
    return Status::usage("argument 'inputs' is null");
  kept.clear();
  for (size_t i = 0; i < count; ++i) {
    if (tensors[i].rank > 0 && !tensors[i].shape)
      return Status::usage("the shape of input " + std::to_string(i) + " is null");
    kept.emplace_back(tensors[i].shape, tensors[i].rank);
  }
  return std::span<const std::span<const int64_t>>(kept);
}

sluice_status sluice_plan_find_bucket(const sluice_plan *plan, const char *program,
                                      const sluice_tensor *inputs, size_t count,
                                      size_t *bucket) {
  return report(guarded([&]() -> Status {
    if (!plan || !program || !bucket)
      return Status::usage("argument 'plan', 'program' or 'bucket' is null");
    auto shapes = shapesOf(inputs, count);
    if (!shapes)
      return shapes.status();
    auto found = chooseBucket(*plan->plan, program, *shapes);
    if (!found)
      return found.status();
    *bucket = *found;
    return Status::success();
  }));
}

/// The batch of tensors that bring their shapes: its bucket, and how many samples it has.
static Status makeBatch(const Session &session, const char *program,
                        const sluice_tensor *inputs, size_t count, Batch *&batch) {
  static thread_local Batch kept;
  auto shapes = shapesOf(inputs, count);
  if (!shapes)
    return shapes.status();
  auto bucket = chooseBucket(session.plan(), program, *shapes);
  if (!bucket)
    return bucket.status();
  const auto *ports = session.plan().program(program, *bucket)->inputs();
  kept.bucket = *bucket;
  kept.shapes.assign(shapes->begin(), shapes->end());
  kept.data.clear();
  kept.count = 0;
  for (size_t i = 0; i < count; ++i) {
    kept.data.push_back(inputs[i].data);
    const fbs::Port *port = ports->Get(static_cast<uint32_t>(i));
    if (!port->batched())
      continue;
    int64_t samples = inputs[i].shape[0];
    if (kept.count != 0 && samples != kept.count)
      return Status::usage("input '" + std::string(viewOf(port->name())) + "' has " +
                           std::to_string(samples) + " samples, others have " +
                           std::to_string(kept.count));
    kept.count = samples;
  }
  if (kept.count == 0)
    kept.count = session.batchOf(*bucket);
  batch = &kept;
  return Status::success();
}

sluice_status sluice_session_step_tensors(sluice_session *session,
                                          const sluice_tensor *inputs, size_t count,
                                          sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Batch *batch = nullptr;
    const char *program = self.plan().trainingProgram();
    Status status = makeBatch(self, program, inputs, count, batch);
    if (status.ok()) {
      batch->firstSample = self.nextSample();
      status = self.step(*batch, result);
    }
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_eval_tensors(sluice_session *session,
                                          const sluice_tensor *inputs, size_t count,
                                          sluice_step_result *out) {
  return with(session, [&](Session &self) {
    StepResult result;
    Batch *batch = nullptr;
    Status status = makeBatch(self, "eval", inputs, count, batch);
    if (status.ok()) {
      batch->firstSample = 0;
      status = self.eval(*batch, result);
    }
    fill(out, result);
    return status;
  });
}

sluice_status sluice_session_infer_tensors(sluice_session *session,
                                           const sluice_tensor *inputs, size_t count) {
  return with(session, [&](Session &self) {
    Batch *batch = nullptr;
    Status status = makeBatch(self, "infer", inputs, count, batch);
    if (!status.ok())
      return status;
    batch->firstSample = 0;
    return self.infer(*batch);
  });
}

size_t sluice_session_bucket(const sluice_session *session) {
  return session ? session->session->lastBucket() : 0;
}
