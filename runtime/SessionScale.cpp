// What the loss scale has done, and the error when it can fall no further.

#include "runtime/NonFinite.h"
#include "runtime/Session.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace sluice {

/// A checkpoint may say anything.
int64_t Session::skippedUpdates() const {
  int64_t skipped = 0;
  for (const int64_t *count : {controls.skipped, controls.outliers})
    if (count && *count > 0)
      skipped += std::min(*count, updatesDone - skipped);
  return skipped;
}

static std::string bareName(std::string_view name) {
  return "'" + std::string(name.starts_with("param/") ? name.substr(6) : name) + "'";
}

/// The index counts trainable parameters in the order of their names.
static std::string trainedName(const Plan &plan, int64_t index) {
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i) {
    const fbs::StateTensor *tensor = plan.raw().state()->Get(i);
    if (tensor->role() == fbs::Role::parameter && tensor->trainable())
      names.push_back(viewOf(tensor->name()));
  }
  std::sort(names.begin(), names.end());
  bool isKnown = index >= 0 && static_cast<size_t>(index) < names.size();
  return isKnown ? bareName(names[static_cast<size_t>(index)]) : "a parameter";
}

Status Session::scaleStuck(int64_t parameter) const {
  char scale[32];
  std::snprintf(scale, sizeof scale, "%g", static_cast<double>(*controls.scale));
  return Status::damaged(
      "update " + std::to_string(updatesDone) + ": the gradient of " +
      trainedName(*planPtr, parameter) + " is not finite at the least loss scale, " +
      scale + " (samples up to " + std::to_string(samplesDone) +
      "); the update was skipped: lower the loss scale ('min_scale'; 'init' of a static "
      "one) or the rate, or go back to a checkpoint");
}

Status Session::explained(Status status, const Batch &batch, StepResult &result) {
  if (status.ok() || !result.skipped)
    return status;
  result.nonFinite = findNonFinite(batch);
  if (!result.nonFinite.empty())
    status.message += "; " + result.nonFinite;
  return status;
}

namespace {

/// A copy of what running a program again would change.
class KeptState {
public:
  void keep(std::span<uint8_t> bytes) {
    parts.emplace_back(bytes, std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
  ~KeptState() {
    for (auto &[place, bytes] : parts)
      std::copy(bytes.begin(), bytes.end(), place.begin());
  }

private:
  std::vector<std::pair<std::span<uint8_t>, std::vector<uint8_t>>> parts;
};

} // namespace

std::string Session::findNonFinite(const Batch &batch) {
  auto loaded = find(addsGradients() ? microProgram : stepProgram, batch.bucket);
  if (!loaded || pending > 0)
    return "";
  KeptState kept;
  std::vector<std::span<uint8_t>> sums; // empty outside a window
  for (const fbs::StateTensor *tensor : *planPtr->raw().state()) {
    std::span<uint8_t> bytes(tensorData(*tensor), tensor->size());
    DType type = static_cast<DType>(tensor->dtype());
    if (tensor->role() == fbs::Role::parameter &&
        countNonFinite(type, bytes.data(), bytes.size()).wrong > 0)
      return "parameter " + bareName(viewOf(tensor->name())) +
             " holds values that are not finite";
    if (tensor->role() == fbs::Role::accumulator)
      sums.push_back(bytes);
    else if (tensor->role() == fbs::Role::buffer ||
             tensor->role() == fbs::Role::control || tensor->role() == fbs::Role::pending)
      kept.keep(bytes);
  }
  std::memset(stepMemory.data(), 0, stepBytes()); // nothing of before is to be seen
  if (!feed(**loaded, batch, batch.firstSample).ok())
    return "";
  writeControls(batch.firstSample, batch.count);
  if (controls.update) // as in the run that is looked at, which has been counted
    *controls.update = std::max<int64_t>(0, updatesDone - 1);
  for (const GroupControls &group : controls.groups)
    if (group.active)
      *group.active = 0; // no parameter and no moment moves
  NonFiniteWatch watch(*(*loaded)->program, arenas());
  LaunchHook hook = [&](uint32_t, uint32_t launch, bool isBefore) {
    if (!isBefore)
      watch.launched(launch);
  };
  // No other rank is met: gradients stay those of this rank's micro-batch.
  if (!(*loaded)->executor->run(*team, {copyQueue.get(), nullptr, nullptr, &hook}).ok())
    return "";
  for (std::span<uint8_t> bytes : sums)
    std::fill(bytes.begin(), bytes.end(), uint8_t(0));
  return watch.text();
}

} // namespace sluice
