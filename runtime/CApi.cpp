// The C API: versions, errors and plans. Sessions are in CApiSession.cpp.

#include "runtime/CApiHandles.h"

using namespace sluice;

static thread_local std::string lastError;

namespace sluice {

sluice_status report(const Status &status) {
  lastError = status.message;
  return static_cast<sluice_status>(status.code);
}

} // namespace sluice

static Status nullArgument(const char *name) {
  return Status::usage(std::string("argument '") + name + "' is null");
}

const char *sluice_version(void) { return "0.1.0"; }

const char *sluice_last_error(void) { return lastError.c_str(); }

static Status keep(Result<PlanPtr> plan, sluice_plan **out) {
  if (!plan)
    return plan.status();
  *out = new sluice_plan{std::move(*plan)};
  return Status::success();
}

sluice_status sluice_plan_open(const char *path, sluice_plan **plan) {
  return report(guarded([&] {
    if (!path || !plan)
      return nullArgument(path ? "plan" : "path");
    *plan = nullptr;
    return keep(PlanReader::readFile(path), plan);
  }));
}

sluice_status sluice_plan_open_memory(const void *data, size_t size, sluice_plan **plan) {
  return report(guarded([&] {
    if (!data || !plan)
      return nullArgument(data ? "plan" : "data");
    *plan = nullptr;
    return keep(PlanReader::readMemory({static_cast<const uint8_t *>(data), size}), plan);
  }));
}

void sluice_plan_close(sluice_plan *plan) { delete plan; }

sluice_status sluice_plan_check(const sluice_plan *plan) {
  return report(guarded([&]() -> Status {
    if (!plan)
      return nullArgument("plan");
    auto level = chooseLevel(*plan->plan);
    if (!level)
      return level.status();
    auto kernels = bindKernels(*plan->plan, *level);
    return kernels ? Status::success() : kernels.status();
  }));
}

sluice_status sluice_plan_memory(const sluice_plan *plan, sluice_memory *memory) {
  if (!plan || !memory)
    return report(nullArgument(plan ? "memory" : "plan"));
  PlanMemory bytes = plan->plan->memory();
  *memory = {bytes.stateBytes, bytes.stepBytes, reservationAlignment,
             bytes.hostStateBytes, bytes.hostStepBytes};
  return report(Status::success());
}

int sluice_plan_threads(const sluice_plan *plan) {
  return plan ? plan->plan->threads() : 0;
}

int64_t sluice_plan_batch(const sluice_plan *plan) {
  return plan ? plan->plan->batch() : 0;
}

int64_t sluice_plan_accumulate(const sluice_plan *plan) {
  return plan ? plan->plan->accumulate() : 0;
}

bool sluice_plan_full_batches(const sluice_plan *plan) {
  return plan && plan->plan->fullBatches();
}

static const char *textOf(const flatbuffers::String *text) {
  return text ? text->c_str() : "";
}

const char *sluice_plan_model_name(const sluice_plan *plan) {
  return plan ? textOf(plan->plan->raw().model_name()) : "";
}

size_t sluice_plan_program_count(const sluice_plan *plan) {
  return plan ? plan->plan->variants()[0].programs.size() : 0;
}

const char *sluice_plan_program(const sluice_plan *plan, size_t index) {
  if (index >= sluice_plan_program_count(plan))
    return nullptr;
  uint32_t place = plan->plan->variants()[0].programs[index];
  return textOf(plan->plan->raw().programs()->Get(place)->name());
}

size_t sluice_plan_group_count(const sluice_plan *plan) {
  return plan ? sizeOf(plan->plan->raw().groups()) : 0;
}

const char *sluice_plan_group(const sluice_plan *plan, size_t index) {
  if (index >= sluice_plan_group_count(plan))
    return nullptr;
  return textOf(plan->plan->raw().groups()->Get(static_cast<uint32_t>(index))->name());
}

using Ports = flatbuffers::Vector<flatbuffers::Offset<fbs::Port>>;

static const Ports *portsOf(const sluice_plan *plan, const char *program, bool inputs) {
  const fbs::Program *found = plan && program ? plan->plan->program(program) : nullptr;
  return !found ? nullptr : inputs ? found->inputs() : found->outputs();
}

template <class Table> static sluice_tensor_info describe(const Table &table) {
  sluice_tensor_info info = {};
  info.name = textOf(table.name());
  info.dtype = static_cast<sluice_dtype>(table.dtype());
  info.rank = sizeOf(table.shape());
  info.shape = table.shape() ? table.shape()->data() : nullptr;
  info.bytes = table.size();
  return info;
}

sluice_tensor_info sluice::describePort(const fbs::Port &port) {
  sluice_tensor_info info = describe(port);
  info.batched = port.batched();
  return info;
}

static sluice_status portInfo(const sluice_plan *plan, const char *program, bool inputs,
                              size_t index, sluice_tensor_info *info) {
  const Ports *ports = portsOf(plan, program, inputs);
  if (!info)
    return report(nullArgument("info"));
  if (index >= sizeOf(ports))
    return report(Status::usage("there is no such program, or it has only " +
                                std::to_string(sizeOf(ports)) +
                                (inputs ? " inputs" : " outputs")));
  const fbs::Port *port = ports->Get(static_cast<uint32_t>(index));
  *info = describePort(*port);
  return report(Status::success());
}

size_t sluice_plan_input_count(const sluice_plan *plan, const char *program) {
  return sizeOf(portsOf(plan, program, true));
}

size_t sluice_plan_output_count(const sluice_plan *plan, const char *program) {
  return sizeOf(portsOf(plan, program, false));
}

sluice_status sluice_plan_input(const sluice_plan *plan, const char *program,
                                size_t index, sluice_tensor_info *info) {
  return portInfo(plan, program, true, index, info);
}

sluice_status sluice_plan_output(const sluice_plan *plan, const char *program,
                                 size_t index, sluice_tensor_info *info) {
  return portInfo(plan, program, false, index, info);
}

size_t sluice_plan_state_count(const sluice_plan *plan) {
  return plan ? sizeOf(plan->plan->raw().state()) : 0;
}

sluice_status sluice_plan_state(const sluice_plan *plan, size_t index,
                                sluice_tensor_info *info) {
  if (!info)
    return report(nullArgument("info"));
  if (index >= sluice_plan_state_count(plan))
    return report(Status::usage("the plan has only " +
                                std::to_string(sluice_plan_state_count(plan)) +
                                " state tensors"));
  const fbs::StateTensor *tensor =
      plan->plan->raw().state()->Get(static_cast<uint32_t>(index));
  *info = describe(*tensor);
  info->trainable = tensor->trainable();
  info->saved = tensor->saved();
  return report(Status::success());
}
