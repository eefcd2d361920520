#include "tools/sluice/ProbeSession.h"

#include "frontend/SpecReader.h"
#include "runtime/Checkpoint.h"
#include "runtime/CheckpointShards.h"
#include "runtime/StoredCodes.h"

#include <cinttypes>
#include <utility>

namespace sluice::cli {
namespace {

/// Gradients of the loss in f32, of one rank and one micro-batch, whatever trains.
TrainingSpec probeSpec(TrainingSpec spec) {
  spec.entries = {"probe"};
  spec.accumulate = spec.asRanks = spec.ranks = 1;
  spec.precision = {};
  spec.lossScale = {};
  spec.clip = {};
  dropMemoryDecisions(spec);
  spec.changes.clear();
  spec.update = {};
  return spec;
}

/// The newest of a folder; the path itself where that is a file.
std::string checkpointFile(const std::string &folderOrFile) {
  std::vector<int64_t> steps = listCheckpoints(folderOrFile);
  if (steps.empty())
    return folderOrFile;
  char name[48];
  std::snprintf(name, sizeof name, "/step-%08" PRId64 ".safetensors", steps.front());
  return folderOrFile + name;
}

bool hasCodes(const Plan &plan) {
  for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i)
    if (codedFormat(*plan.raw().state()->Get(i)))
      return true;
  return false;
}

} // namespace

Status ProbeSession::open(const Console &console) {
  Status status = openPlan();
  return status.ok() ? openState(console) : status;
}

/// The plan given where it can do it, else one made of the model for this.
Status ProbeSession::openPlan() {
  if (!isPlanFile(run.plan))
    return compileModel();
  auto read = PlanReader::readFile(run.plan);
  if (!read)
    return read.status();
  given = *read;
  if (subject.readsMoments)
    return Status::success();
  if (!subject.model.empty())
    return compileBeside();
  if (given->program("probe"))
    return Status::success();
  return Status::refused(
      "the plan '" + run.plan +
      "' has no program 'probe': name its model (--model MODEL.onnx), or compile with "
      "'entries: [step, eval, infer, probe]'");
}

Status ProbeSession::compileModel() {
  if (subject.readsMoments)
    return Status::usage("--kind moments reads a plan's state, '" + run.plan +
                         "' is no plan");
  SpecResult read = readSpec(subject.spec, subject.sets);
  if (!read.spec) {
    std::string text;
    for (const std::string &line : read.errors)
      text += (text.empty() ? "" : "\n") + line;
    return Status::refused(text);
  }
  return compile(run.plan, *read.spec);
}

Status ProbeSession::compileBeside() {
  auto spec = specOfPlan(*given);
  if (!spec)
    return spec.status();
  if (Status status = compile(subject.model, *spec, given.get()); !status.ok())
    return status;
  // The weights that the plan starts from, where no others are named.
  if (run.weights.empty() && run.checkpoint.empty() && !hasCodes(*given))
    run.weights = given->weightsPath();
  return Status::success();
}

Status ProbeSession::compile(const std::string &model, const TrainingSpec &spec,
                             const Plan *of) {
  auto made = TemporaryPlan::compile(model, probeSpec(spec), subject.samples, of);
  if (!made)
    return made.status();
  temporary = std::move(*made);
  run.plan = temporary->path();
  return Status::success();
}

Status ProbeSession::openState(const Console &console) {
  auto created = openSession(run, console);
  if (!created)
    return created.status();
  opened = std::move(*created);
  if (run.checkpoint.empty())
    return temporary && given && run.weights.empty() ? copyWeights(console)
                                                     : Status::success();
  if (temporary)
    return loadTrainedWeights();
  auto loaded = loadCheckpoint(*opened, run.checkpoint);
  if (!loaded)
    return loaded.status();
  for (const std::string &note : loaded->notes)
    console.message("note: " + note);
  return Status::success();
}

/// The values that the given plan starts from, where its file has codes for them.
Status ProbeSession::copyWeights(const Console &console) {
  auto source = openSession(subject.run, console);
  if (!source)
    return source.status();
  const Plan &plan = opened->plan();
  Status status;
  for (uint32_t i = 0; status.ok() && i < sizeOf(plan.raw().state()); ++i) {
    const fbs::StateTensor &tensor = *plan.raw().state()->Get(i);
    std::string name(viewOf(tensor.name()));
    const fbs::StateTensor *from = given->state(name);
    if (!from ||
        (tensor.role() != fbs::Role::parameter && tensor.role() != fbs::Role::buffer))
      continue;
    if (!codedFormat(*from) && from->dtype() == tensor.dtype()) {
      std::span<const uint8_t> bytes = std::as_const(**source).state(name);
      status = opened->writeState(name, bytes.data(), bytes.size());
      continue;
    }
    std::vector<float> values(tensor.size() / sizeof(float));
    if (status = (*source)->readParameter(name, values); status.ok())
      status = opened->writeParameter(name, values);
  }
  return status;
}

/// A plan made for this has no state but weights.
Status ProbeSession::loadTrainedWeights() {
  std::string path = checkpointFile(run.checkpoint);
  auto file = openWithShards(path);
  if (!file)
    return file.status();
  auto hash = file->metadata().find("model_hash");
  std::string_view expected = viewOf(opened->plan().raw().model_hash());
  if (hash != file->metadata().end() && hash->second != expected)
    return Status::refused("'" + path +
                           "' is a checkpoint of another model: its hash is " +
                           hash->second + ", the model's " + std::string(expected));
  return opened->loadWeights(path);
}

} // namespace sluice::cli
