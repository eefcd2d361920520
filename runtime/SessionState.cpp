// The state of a session: initial values, weights by name, reading and writing.

#include "runtime/Fill.h"
#include "runtime/Safetensors.h"
#include "runtime/Session.h"
#include "runtime/StateShard.h"

#include <algorithm>
#include <cstring>

namespace sluice {

void Session::findControls() {
  controls.seed = stateScalar<int64_t>("control/seed");
  controls.update = stateScalar<int64_t>("control/update");
  controls.sample = stateScalar<int64_t>("control/sample");
  controls.valid = stateScalar<int64_t>("control/valid");
  controls.rank = stateScalar<int64_t>("control/rank");
  controls.label = stateScalar<int64_t>("control/class");
  controls.step = stateScalar<int64_t>("step");
  controls.pending = stateScalar<int64_t>("control/pending");
  controls.skipped = stateScalar<int64_t>("scale/skipped");
  controls.outliers = stateScalar<int64_t>("scale/norm/outliers");
  controls.scale = stateScalar<float>("scale/value");
  spikes = SpikeWatch(planPtr->raw().spikes(), stateScalar<double>("scale/spikes"));
  for (uint32_t i = 0; i < sizeOf(planPtr->raw().groups()); ++i) {
    GroupControls group;
    group.group = planPtr->raw().groups()->Get(i);
    std::string prefix = "control/" + std::string(viewOf(group.group->name())) + "/";
    group.lr = stateScalar<float>(prefix + "lr");
    group.bc1 = stateScalar<float>(prefix + "bc1");
    group.bc2 = stateScalar<float>(prefix + "bc2");
    group.nadamG = stateScalar<float>(prefix + "nadam_g");
    group.nadamM = stateScalar<float>(prefix + "nadam_m");
    group.radamR = stateScalar<float>(prefix + "radam_r");
    controls.groups.push_back(std::move(group));
  }
  phase = UpdatePhase(planPtr->raw(), stateScalar<int64_t>("window/waiting"));
  findHyper();
  keepForRerun(); // has its room from here on
}

std::span<uint8_t> Session::state(std::string_view name) {
  const fbs::StateTensor *tensor = planPtr->state(name);
  if (!tensor)
    return {};
  return {tensorData(*tensor), tensor->size()};
}

std::span<const uint8_t> Session::state(std::string_view name) const {
  return const_cast<Session *>(this)->state(name);
}

static Status checkSize(const Plan &plan, std::string_view name, size_t bytes) {
  const fbs::StateTensor *tensor = plan.state(name);
  if (!tensor)
    return Status::usage("the plan has no state tensor '" + std::string(name) + "'");
  if (tensor->size() != bytes)
    return Status::usage("state tensor '" + std::string(name) + "' has " +
                         std::to_string(tensor->size()) + " bytes, " +
                         std::to_string(bytes) + " are given");
  return Status::success();
}

Status Session::readState(std::string_view name, void *target, size_t bytes) const {
  Status status = checkSize(*planPtr, name, bytes);
  if (status.ok() && bytes > 0)
    std::memcpy(target, state(name).data(), bytes);
  return status;
}

Status Session::writeState(std::string_view name, const void *source, size_t bytes) {
  Status status = checkSize(*planPtr, name, bytes);
  if (status.ok() && bytes > 0)
    std::memcpy(state(name).data(), source, bytes);
  return status;
}

static bool sameTensor(const TensorEntry &entry, const fbs::StateTensor &tensor) {
  return entry.dtype == static_cast<DType>(tensor.dtype()) &&
         entry.shape == wholeShapeOf(tensor);
}

static std::string typeText(DType type, const std::string &shape) {
  return std::string(dtypeName(type)) + shape;
}

static Status differs(const SafetensorsFile &file, const TensorEntry &entry,
                      const fbs::StateTensor &tensor) {
  return Status::refused(
      "'" + file.name() + "': tensor '" + entry.name + "' is " +
      typeText(entry.dtype, shapeText(std::span(entry.shape))) + ", the plan expects " +
      typeText(static_cast<DType>(tensor.dtype()), shapeText(wholeShape(tensor))));
}

Status Session::initialTensor(const fbs::StateTensor &tensor,
                              const SafetensorsFile *file) {
  uint8_t *data = tensorData(tensor);
  bool onHost = tensor.space() == fbs::Space::host_state;
  bool isFresh = (onHost ? hostStateMemory : stateMemory).isFresh();
  std::string_view name = viewOf(tensor.name());
  switch (tensor.init()) {
  case fbs::InitKind::zeros:
    if (!isFresh && tensor.size() > 0)
      std::memset(data, 0, tensor.size());
    break;
  case fbs::InitKind::fill:
    fillTensor(static_cast<DType>(tensor.dtype()), data, tensor.size(), tensor.fill());
    break;
  case fbs::InitKind::file: {
    const TensorEntry *entry = file->find(name);
    if (!entry)
      return Status::damaged("'" + file->name() + "' lacks the initial value of '" +
                             std::string(name) +
                             "'; it does not belong to this plan: compile again");
    if (!sameTensor(*entry, tensor))
      return differs(*file, *entry, tensor);
    ElementRange own = ownElements(*planPtr, tensor, rank());
    uint64_t each = dtypeSize(entry->dtype), bytes = (own.end - own.begin) * each;
    if (bytes > 0)
      std::memcpy(data, file->data(*entry).data() + own.begin * each, bytes);
    if (bytes < tensor.size())
      std::memset(data + bytes, 0, tensor.size() - bytes);
    break;
  }
  }
  return Status::success();
}

Status Session::initialState() {
  const auto *tensors = planPtr->raw().state();
  bool needsFile = false;
  for (uint32_t i = 0; i < sizeOf(tensors); ++i)
    needsFile |= tensors->Get(i)->init() == fbs::InitKind::file;
  std::optional<SafetensorsFile> file;
  if (needsFile) {
    std::string path =
        options.weightsPath.empty() ? planPtr->weightsPath() : options.weightsPath;
    if (path.empty())
      return Status::usage("the plan comes from memory and needs its initial state; name "
                           "the safetensors file that was compiled with it");
    auto opened = SafetensorsFile::open(path);
    if (!opened)
      return Status::damaged(
          "the initial state of the plan is gone: " + opened.status().message +
          "; compile writes it beside the plan, keep both together");
    if (Status status = opened->verifyChecksum(); !status.ok())
      return status;
    file = std::move(*opened);
  }
  for (uint32_t i = 0; i < sizeOf(tensors); ++i) {
    Status status = initialTensor(*tensors->Get(i), file ? &*file : nullptr);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
