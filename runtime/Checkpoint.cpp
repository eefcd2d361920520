#include "runtime/Checkpoint.h"

#include "runtime/CheckpointShards.h"
#include "runtime/Fill.h"
#include "runtime/HeadGrowth.h"
#include "runtime/Safetensors.h"
#include "runtime/StateShard.h"
#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <unordered_set>

namespace sluice {

namespace fs = std::filesystem;

constexpr char formatName[] = "sluice-checkpoint-1";
constexpr std::string_view namePrefix = "step-", nameSuffix = ".safetensors";

static std::string fileName(int64_t step) {
  char text[64];
  std::snprintf(text, sizeof text, "step-%08lld.safetensors",
                static_cast<long long>(step));
  return text;
}

static std::optional<int64_t> parseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

static std::optional<int64_t> stepOfName(std::string_view name) {
  if (name.size() < namePrefix.size() + nameSuffix.size() + 8 ||
      !name.starts_with(namePrefix) || !name.ends_with(nameSuffix))
    return std::nullopt;
  name.remove_prefix(namePrefix.size());
  name.remove_suffix(nameSuffix.size());
  return parseInteger(name);
}

std::vector<int64_t> listCheckpoints(const std::string &folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (auto step = stepOfName(it->path().filename().string()))
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

static std::string textOf(const flatbuffers::String *text) {
  return std::string(viewOf(text));
}

/// Removes what is older than the newest `keep` up to `step`, and files an interrupted
/// save has left.
static void removeOld(const std::string &folder, int64_t step, int keep) {
  std::error_code error;
  int seen = 0;
  for (int64_t other : listCheckpoints(folder))
    if (other <= step && ++seen > std::max(keep, 1))
      fs::remove(fs::path(folder) / fileName(other), error);
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    size_t mark = name.find(".tmp-");
    if (mark != std::string::npos && stepOfName(name.substr(0, mark)))
      leftovers.push_back(it->path());
  }
  for (const fs::path &path : leftovers)
    fs::remove(path, error);
  removeUnlistedShards(folder);
}

/// The values of its parameter say what it holds.
static bool isCodedMaster(const Plan &plan, const fbs::StateTensor &tensor) {
  return tensor.role() == fbs::Role::master && codedOwner(plan, tensor);
}

/// Of a shard: the own elements, which lie at its front.
static SliceToWrite sliceOf(const Session &session, const fbs::StateTensor &tensor,
                            TensorToWrite out) {
  ElementRange own = ownElements(session.plan(), tensor, session.rank());
  out.bytes = (own.end - own.begin) * dtypeSize(out.dtype);
  out.shape = {static_cast<int64_t>(own.end - own.begin)};
  return {std::move(out), own.begin, wholeShapeOf(tensor)};
}

/// The saved state, in the order of names. Parameters in codes are saved as f32 values,
/// which `decoded` holds: exact ones where there is a master.
static ShardContent savedTensors(const Session &session,
                                 std::deque<std::vector<float>> &decoded) {
  const auto *state = session.plan().raw().state();
  ShardContent content;
  for (uint32_t i = 0; i < sizeOf(state); ++i) {
    const fbs::StateTensor *tensor = state->Get(i);
    if (!tensor->saved() || isCodedMaster(session.plan(), *tensor))
      continue;
    TensorToWrite out;
    out.name = textOf(tensor->name());
    out.dtype = static_cast<DType>(tensor->dtype());
    out.shape = wholeShapeOf(*tensor);
    out.data = session.state(out.name).data();
    out.bytes = tensor->size();
    if (codedFormat(*tensor)) {
      const std::vector<float> &values =
          decoded.emplace_back(decodeState(session, *tensor));
      out.dtype = DType::f32;
      out.shape = valueShapeOf(*tensor);
      out.data = values.data();
      out.bytes = values.size() * sizeof(float);
    }
    if (isShard(*tensor))
      content.slices.push_back(sliceOf(session, *tensor, std::move(out)));
    else
      content.tensors.push_back(std::move(out));
  }
  std::ranges::sort(content.tensors, {}, &TensorToWrite::name);
  std::ranges::sort(content.slices, {},
                    [](const SliceToWrite &slice) { return slice.tensor.name; });
  constexpr double share = 0.25; // of the timeout
  content.patience = std::chrono::milliseconds(
      static_cast<int64_t>(share * 1e3 * session.plan().raw().timeout_s()));
  return content;
}

static Metadata metadataOf(const Session &session) {
  const fbs::Plan &plan = session.plan().raw();
  Metadata metadata = {{"format", formatName},
                       {"model_name", textOf(plan.model_name())},
                       {"model_hash", textOf(plan.model_hash())},
                       {"spec_hash", textOf(plan.spec_hash())},
                       {"step", std::to_string(session.updates())},
                       {"samples", std::to_string(session.samples())},
                       {"seed", std::to_string(session.seed())}};
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    if (auto format = codedFormat(*plan.state()->Get(i)))
      metadata[formatKey(viewOf(plan.state()->Get(i)->name()))] = traitsOf(*format).name;
  for (auto &[key, value] : session.changes())
    metadata[key] = value;
  return metadata;
}

Result<std::string> saveCheckpoint(const Session &session, const std::string &folder,
                                   const CheckpointOptions &options) {
  if (session.pendingMicroBatches() > 0)
    return Status::usage(std::to_string(session.pendingMicroBatches()) + " of " +
                         std::to_string(session.plan().accumulate()) +
                         " micro-batches of the window are done; flush before saving");
  std::error_code error;
  fs::create_directories(folder, error);
  Status status = error ? Status::refused("cannot create the folder '" + folder +
                                          "': " + error.message())
                        : Status::success();
  std::string path = (fs::path(folder) / fileName(session.updates())).string();
  bool together = options.byAllRanks || session.plan().hasShards();
  Communicator *comm = together ? session.communicator() : nullptr;
  if (session.plan().hasShards() && !comm)
    return Status::usage("the plan's " + std::to_string(session.plan().ranks()) +
                         " ranks hold parts of its state: a session without them has no "
                         "whole checkpoint to write");
  std::deque<std::vector<float>> decoded;
  if (comm)
    status = saveShards(*comm, path, session.updates(), savedTensors(session, decoded),
                        metadataOf(session), options.observer, std::move(status));
  else if (status.ok())
    status = writeSafetensors(path, savedTensors(session, decoded).tensors,
                              metadataOf(session), options.observer);
  if (!status.ok())
    return status;
  if (!comm || comm->rank() == 0)
    removeOld(folder, session.updates(), options.keep);
  return path;
}

namespace {

struct Progress {
  int64_t step = 0, samples = 0;
  uint64_t seed = 0;
};

Result<Progress> progressOf(const SafetensorsFile &file) {
  auto text = [&](const char *key) {
    auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("format") != formatName || !file.hasChecksum())
    return Status::damaged("'" + file.name() + "' is no checkpoint: its format is '" +
                           text("format") + "', expected '" + formatName +
                           "' with a checksum (weights alone: --weights)");
  std::optional<int64_t> step = parseInteger(text("step")),
                         samples = parseInteger(text("samples"));
  std::string seedText = text("seed");
  uint64_t seed = 0;
  auto parsed = std::from_chars(seedText.data(), seedText.data() + seedText.size(), seed);
  if (!step || !samples || parsed.ec != std::errc())
    return Status::damaged("'" + file.name() +
                           "' is damaged: its counters are unreadable");
  return Progress{*step, *samples, seed};
}

/// Whole: parsed, checksum right, counters there.
Result<SafetensorsFile> openWhole(const std::string &path) {
  auto file = openWithShards(path);
  if (!file)
    return file.status();
  if (auto progress = progressOf(*file); !progress)
    return progress.status();
  return file;
}

/// Adds to a list of at most 12 lines.
void addLine(std::vector<std::string> &lines, std::string line) {
  if (lines.size() < 12)
    lines.push_back(std::move(line));
  else if (lines.size() == 12)
    lines.push_back("...");
}

/// A checkpoint loads into a plan with another loss scale: what one of them lacks is left
/// out.
bool isScale(std::string_view name) { return name.starts_with("scale/"); }

/// Nor need it have the same modes of update: what waits for one is state of its plan.
bool isPending(std::string_view name) {
  return name.starts_with("pending/") || name.starts_with("window/") ||
         name.starts_with("old/") || name.ends_with("/dc_mean_square");
}
bool mayBeMissing(std::string_view name) { return isScale(name) || isPending(name); }

/// What waits is taken whole or not at all: counts, gradients and old weights of other
/// modes do not belong together.
bool takesPending(const Plan &plan, const SafetensorsFile &file) {
  const auto *tensors = plan.raw().state();
  size_t own = 0, found = 0;
  for (uint32_t i = 0; i < sizeOf(tensors); ++i)
    if (std::string_view name = viewOf(tensors->Get(i)->name());
        tensors->Get(i)->saved() && isPending(name)) {
      ++own;
      found += file.find(name) != nullptr;
    }
  auto given = std::ranges::count_if(
      file.tensors(), [](const TensorEntry &entry) { return isPending(entry.name); });
  return own == found && static_cast<size_t>(given) == own;
}

/// What of the loss scale the other side lacks, or has in excess.
void noteScale(const Plan &plan, const SafetensorsFile &file,
               std::vector<std::string> &notes) {
  bool inFile = file.find("scale/value") != nullptr, inPlan = plan.state("scale/value");
  if (inFile && !inPlan)
    notes.push_back("checkpoint '" + file.name() +
                    "' has a loss scale, the plan has none: it is left out");
  if (inPlan && !inFile)
    notes.push_back("checkpoint '" + file.name() +
                    "' has no loss scale: the plan's begins anew");
}

/// The checkpoint is of other modes of update.
void notePending(const Plan &plan, const SafetensorsFile &file,
                 std::vector<std::string> &notes) {
  bool inPlan = plan.state("window/waiting");
  const TensorEntry *entry = file.find("window/waiting");
  int64_t waiting = 0;
  if (entry && file.data(*entry).size() == sizeof waiting)
    std::memcpy(&waiting, file.data(*entry).data(), sizeof waiting);
  if (waiting > 0 && !inPlan)
    notes.push_back("checkpoint '" + file.name() +
                    "' has gradients that wait for their update, the plan has no groups "
                    "that interleave or are deferred: they are left out");
  if (waiting > 0 && inPlan && !takesPending(plan, file))
    notes.push_back("checkpoint '" + file.name() +
                    "' has gradients that wait for their update in other modes or groups "
                    "than the plan's: they are left out");
  if (inPlan && !entry)
    notes.push_back("checkpoint '" + file.name() +
                    "' has no gradients that wait for their update: none does");
}

/// State of the scale that a checkpoint lacks begins as the plan says.
void resetScale(Session &session, const SafetensorsFile &file) {
  const auto *tensors = session.plan().raw().state();
  bool takes = takesPending(session.plan(), file);
  for (uint32_t i = 0; i < sizeOf(tensors); ++i) {
    const fbs::StateTensor *tensor = tensors->Get(i);
    std::string_view name = viewOf(tensor->name());
    bool isLeftOut = isPending(name) && !takes;
    if (mayBeMissing(name) && (isLeftOut || !file.find(name)))
      fillTensor(static_cast<DType>(tensor->dtype()), session.state(name).data(),
                 tensor->size(), tensor->fill());
  }
}

/// Anchors and importances: a plan without a penalty leaves them out.
bool isContinual(std::string_view name) {
  return name.starts_with("ewc/") || name.starts_with("si/");
}

/// What each saved tensor of the plan comes from, or else how file and plan differ.
struct Match {
  std::vector<StateSource> sources, grown;
  std::vector<std::string> differences;
  bool lacksAnchors = false; // and nothing else
};

Match match(const Plan &plan, const SafetensorsFile &file, const LoadOptions &options) {
  Match result;
  std::unordered_set<const TensorEntry *> used;
  size_t lacking = 0; // anchors, importances, paths
  bool takes = takesPending(plan, file);
  for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i) {
    const fbs::StateTensor *tensor = plan.raw().state()->Get(i);
    if (!tensor->saved() || isCompletion(plan, *tensor))
      continue;
    std::string name = textOf(tensor->name());
    if (isPending(name) && !takes)
      continue;
    StateSource source = findSource(plan, *tensor, file, name);
    if (!source.entry) {
      if (isContinual(name))
        ++lacking;
      else if (!mayBeMissing(name))
        addLine(result.differences, "'" + name + "' is missing in the checkpoint");
      continue;
    }
    used.insert({source.entry, source.completion});
    std::string text = mismatch(source);
    bool isGrown = !text.empty() && grownDimension(source);
    if (isGrown && options.growsHeads)
      result.grown.push_back(source);
    else if (!text.empty())
      addLine(result.differences,
              isGrown ? text + "; where classes were added, --grow-head keeps the others"
                      : text);
    else
      result.sources.push_back(source);
  }
  for (const TensorEntry &entry : file.tensors())
    if (!used.contains(&entry) && !mayBeMissing(entry.name) &&
        !(isContinual(entry.name) && !plan.raw().continual()))
      addLine(result.differences, "'" + entry.name + "' is not in the plan");
  result.lacksAnchors = lacking > 0 && result.differences.empty();
  return result;
}

Result<CheckpointInfo> restore(Session &session, const SafetensorsFile &file,
                               const LoadOptions &options,
                               std::vector<std::string> notes) {
  Match found = match(session.plan(), file, options);
  if (found.lacksAnchors)
    return Status::refused("checkpoint '" + file.name() +
                           "' has no anchors and importances, which the plan's "
                           "'continual' needs: it was saved without; begin with its "
                           "weights alone, --weights");
  if (!found.differences.empty()) {
    std::string text = "checkpoint '" + file.name() + "' is of another model:";
    for (const std::string &line : found.differences)
      text += "\n  " + line;
    return Status::refused(text);
  }
  Progress progress = *progressOf(file);
  noteScale(session.plan(), file, notes);
  if (!session.plan().raw().continual() &&
      std::ranges::any_of(file.tensors(), [](const TensorEntry &entry) {
        return isContinual(entry.name);
      }))
    notes.push_back("checkpoint '" + file.name() +
                    "' has anchors and importances, the plan no penalty: they are left "
                    "out");
  notePending(session.plan(), file, notes);
  resetScale(session, file);
  for (const StateSource &source : found.grown) {
    copyGrown(session, source, *grownDimension(source), file);
    addLine(notes, "checkpoint '" + file.name() + "': " + growthText(source));
  }
  ConversionNotes conversions;
  for (const StateSource &source : found.sources)
    conversions.add(source, transfer(session, source, file));
  for (const std::string &line : conversions.lines())
    notes.push_back("checkpoint '" + file.name() + "': " + line);
  session.resumeAt(progress.step, progress.samples, progress.seed);
  session.clearChanges();
  for (const auto &[key, value] : file.metadata())
    if (key.starts_with("control/"))
      if (Status status = session.applyChange(key, value); !status.ok())
        notes.push_back("checkpoint '" + file.name() + "': change '" + key +
                        "' is left out: " + status.message);
  auto specHash = file.metadata().find("spec_hash");
  if (specHash != file.metadata().end() &&
      specHash->second != textOf(session.plan().raw().spec_hash()))
    notes.push_back("checkpoint '" + file.name() +
                    "' was made under another spec; the plan's own applies from here");
  return CheckpointInfo{file.name(), progress.step, progress.samples, std::move(notes)};
}

} // namespace

Result<CheckpointInfo> loadCheckpoint(Session &session, const std::string &folderOrFile,
                                      const LoadOptions &options) {
  std::error_code error;
  if (!fs::is_directory(folderOrFile, error)) {
    auto file = openWhole(folderOrFile);
    if (!file)
      return file.status();
    return restore(session, *file, options, {});
  }
  std::vector<std::string> notes;
  for (int64_t step : listCheckpoints(folderOrFile)) {
    auto file = openWhole((fs::path(folderOrFile) / fileName(step)).string());
    if (file)
      return restore(session, *file, options, std::move(notes));
    notes.push_back("skipped: " + file.status().message);
  }
  if (notes.empty())
    return Status::refused("there is no checkpoint in '" + folderOrFile + "'");
  std::string text = "no checkpoint in '" + folderOrFile + "' is whole:";
  for (const std::string &note : notes)
    text += "\n  " + note;
  return Status::damaged(text);
}

} // namespace sluice
