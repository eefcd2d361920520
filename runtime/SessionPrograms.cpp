// The programs of a session, for every bucket of shapes on its rung of the memory ladder,
// and what they are fed with.

#include "runtime/Buckets.h"
#include "runtime/Session.h"

#include <cstring>

namespace sluice {

static constexpr std::string_view programNames[] = {
    "step", "micro", "close_rank", "update", "eval", "infer", "probe", "fisher"};

void Session::findScalars(LoadedProgram &loaded) {
  const auto *outputs = loaded.program->outputs();
  for (uint32_t o = 0; o < sizeOf(outputs); ++o) {
    const fbs::Port *port = outputs->Get(o);
    uint8_t *base = arenas().of(port->space());
    if (viewOf(port->name()) == "nonfinite" && port->dtype() == fbs::DType::i64 &&
        port->size() == sizeof(int64_t))
      loaded.nonFinite = reinterpret_cast<const int64_t *>(base + port->offset());
    if (viewOf(port->name()) == "outlier" && port->dtype() == fbs::DType::i64 &&
        port->size() == sizeof(int64_t))
      loaded.outlier = reinterpret_cast<const int64_t *>(base + port->offset());
    if (port->dtype() != fbs::DType::f32 || port->size() != sizeof(float))
      continue;
    const float *value = reinterpret_cast<const float *>(base + port->offset());
    if (viewOf(port->name()) == "loss_sum")
      loaded.lossSum = value;
    else if (viewOf(port->name()) == "loss_count")
      loaded.lossCount = value;
    else if (viewOf(port->name()) == "grad_norm")
      loaded.gradNorm = value;
  }
}

void Session::loadPrograms() {
  programs.clear();
  programs.resize(planPtr->buckets());
  for (uint32_t bucket = 0; bucket < planPtr->buckets(); ++bucket) {
    const PlanVariant &variant = planPtr->variant(bucket, rungIndex);
    for (size_t kind = 0; kind < std::size(programNames); ++kind)
      load(programNames[kind], variant, programs[bucket][kind]);
  }
  // What depends on the state alone is the same in every bucket.
  turns.clear();
  turns.resize(static_cast<size_t>(planPtr->raw().update_every()));
  for (size_t turn = 0; turns.size() > 1 && turn < turns.size(); ++turn)
    load("update." + std::to_string(turn), planPtr->variant(0, rungIndex), turns[turn]);
}

void Session::load(std::string_view name, const PlanVariant &variant,
                   LoadedProgram &loaded) {
  auto index = planPtr->programIndex(name, variant);
  if (!index)
    return;
  loaded.program = planPtr->raw().programs()->Get(*index);
  loaded.batch = variant.batch;
  loaded.executor = std::make_unique<Executor>(*planPtr, *index, kernels, arenas(),
                                               team->size(), rank());
  findScalars(loaded);
}

Result<Session::LoadedProgram *> Session::find(ProgramKind kind, uint32_t bucket) {
  if (bucket >= programs.size())
    return Status::usage("there is no bucket " + std::to_string(bucket) +
                         "; the plan has " + std::to_string(programs.size()));
  LoadedProgram &loaded = programs[bucket][kind];
  if (loaded.program)
    return &loaded;
  std::string list;
  for (const std::string &name : planPtr->programNames())
    list += (list.empty() ? "'" : ", '") + name + "'";
  return Status::usage("the plan has no program '" + std::string(programNames[kind]) +
                       "'; it has " + list);
}

/// A short batch is refused where its padding would be seen.
Status Session::checkCount(const LoadedProgram &loaded, int64_t count) const {
  auto needsAll = [&] { // steps allocate nothing, so the text is made when needed
    return " needs all " + std::to_string(loaded.batch) + " samples, " +
           std::to_string(count) + " are given";
  };
  if (count < 1 || count > loaded.batch)
    return Status::usage("a batch has 1 to " + std::to_string(loaded.batch) +
                         " samples, " + std::to_string(count) + " are given");
  if (count == loaded.batch)
    return Status::success();
  bool isInfer = viewOf(loaded.program->name()) == programNames[inferProgram];
  if (planPtr->fullBatches() && !isInfer)
    return Status::usage("the model's own loss would count padding: a batch" +
                         needsAll());
  std::string_view mixing = viewOf(loaded.program->mixes());
  if (!mixing.empty())
    return Status::usage("padding would be seen in the output '" + std::string(mixing) +
                         "', where samples meet: a batch" + needsAll());
  return Status::success();
}

Status Session::feed(const LoadedProgram &loaded, const Batch &batch,
                     int64_t firstSample) {
  const auto *inputs = loaded.program->inputs();
  if (batch.data.size() != sizeOf(inputs))
    return Status::usage("program '" + std::string(viewOf(loaded.program->name())) +
                         "' has " + std::to_string(sizeOf(inputs)) + " inputs, " +
                         std::to_string(batch.data.size()) + " are given");
  if (Status status = checkCount(loaded, batch.count); !status.ok())
    return status;
  lastProgram = nullptr;
  bucketOfLast = batch.bucket;
  fillStep();
  for (uint32_t i = 0; i < sizeOf(inputs); ++i) {
    const fbs::Port *port = inputs->Get(i);
    BatchPart part{batch.count, loaded.batch, firstSample, {}};
    if (i < batch.shapes.size())
      part.shape = batch.shapes[i];
    Status status = copyInput(*port, batch.data[i], part, options.inputs,
                              stepMemory.data() + port->offset());
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
