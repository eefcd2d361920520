#include "runtime/continual/TaskMasks.h"

#include "runtime/Fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice {
namespace {

constexpr int8_t freeTask = 127; // as in passes/TaskMasks.h
constexpr const char *cursorName = "task/cursor";

std::string textOf(const flatbuffers::String *text) { return std::string(viewOf(text)); }

template <class T> std::span<T> valuesOf(Session &session, const std::string &name) {
  std::span<uint8_t> bytes = session.state(name);
  return {reinterpret_cast<T *>(bytes.data()), bytes.size() / sizeof(T)};
}

/// A buffer or parameter, by the model's name.
std::string stateOf(const std::string &name) { return "param/" + name; }

std::span<uint8_t> ownOf(Session &session, const std::string &name, int64_t task) {
  size_t bytes = session.state(stateOf(name)).size();
  return session.state("task/own/" + name)
      .subspan(bytes * static_cast<size_t>(task - 1), bytes);
}

/// 8 elements in a byte, the first in its lowest bit.
void packBits(std::span<const float> scores, std::span<uint8_t> bits) {
  std::fill(bits.begin(), bits.end(), uint8_t{0});
  for (size_t i = 0; i < scores.size(); ++i)
    bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | ((scores[i] > 0) << (i % 8)));
}

/// Every tensor that the table names is there, of sizes that belong together: the plan
/// may be a stranger's.
Status checkTensors(Session &session, const fbs::Masks &table, bool isPacked) {
  size_t tasks = sizeOf(table.tasks());
  auto wrong = [](const std::string &name) {
    return Status::damaged("the plan's masks name '" + name +
                           "', which its state does not hold in the right size");
  };
  if (tasks == 0 || tasks > 62)
    return Status::damaged("the plan's masks are for " + std::to_string(tasks) +
                           " tasks, expected 1 to 62");
  if (session.state(cursorName).size() != 4 * sizeof(int64_t))
    return wrong(cursorName);
  for (const char *name : {"task/trains", "task/limit"})
    if (isPacked && session.state(name).size() != sizeof(float))
      return wrong(name);
  for (uint32_t i = 0; i < sizeOf(table.own()); ++i) {
    std::string name = textOf(table.own()->Get(i));
    size_t bytes = session.state(stateOf(name)).size();
    if (session.state("task/own/" + name).size() != bytes * tasks)
      return wrong("task/own/" + name);
  }
  for (uint32_t i = 0; i < sizeOf(table.weights()); ++i) {
    std::string name = textOf(table.weights()->Get(i));
    size_t elements = session.state(stateOf(name)).size() / sizeof(float);
    if (isPacked && session.state("mask/" + name).size() != elements)
      return wrong("mask/" + name);
    if (!isPacked &&
        session.state(stateOf(name) + ".score").size() / sizeof(float) != elements)
      return wrong(stateOf(name) + ".score");
    for (uint32_t t = 0; !isPacked && t < tasks; ++t) {
      std::string bits = "mask/" + textOf(table.tasks()->Get(t)) + "/" + name;
      if (session.state(bits).size() != (elements + 7) / 8)
        return wrong(bits);
    }
  }
  return Status::success();
}

} // namespace

bool hasMasks(const Plan &plan) { return plan.raw().masks() != nullptr; }

Result<int64_t> taskNamed(const Plan &plan, std::string_view name) {
  const fbs::Masks *table = plan.raw().masks();
  if (!table)
    return Status::refused("the plan has no tasks: compile with 'continual.masks'");
  std::string known;
  for (uint32_t i = 0; i < sizeOf(table->tasks()); ++i) {
    if (viewOf(table->tasks()->Get(i)) == name)
      return static_cast<int64_t>(i) + 1;
    known += (i == 0 ? "'" : ", '") + textOf(table->tasks()->Get(i)) + "'";
  }
  return Status::refused("unknown task '" + std::string(name) +
                         "': the plan's tasks are " + known);
}

TaskMasks::TaskMasks(Session &session)
    : session(&session), table(session.plan().raw().masks()),
      isPacked(viewOf(table->kind()) == "packnet") {}

Result<TaskMasks> TaskMasks::open(Session &session) {
  if (!hasMasks(session.plan()))
    return taskNamed(session.plan(), "").status();
  TaskMasks masks(session);
  Status status = checkTensors(session, *masks.table, masks.isPacked);
  if (!status.ok())
    return status;
  Cursor now = masks.cursor(); // of a checkpoint that may be a stranger's
  int64_t tasks = static_cast<int64_t>(sizeOf(masks.table->tasks()));
  if (now.task < 0 || now.task > tasks || now.phase < Phase::none ||
      now.phase > Phase::ended || (now.task == 0) != (now.phase == Phase::none))
    return Status::damaged("'" + std::string(cursorName) + "' is task " +
                           std::to_string(now.task) + ", expected one of " +
                           std::to_string(tasks));
  return masks;
}

std::string TaskMasks::nameOf(int64_t task) const {
  uint32_t index = static_cast<uint32_t>(task - 1);
  return task > 0 && index < sizeOf(table->tasks()) ? textOf(table->tasks()->Get(index))
                                                    : std::to_string(task);
}

TaskMasks::Cursor TaskMasks::cursor() const {
  int64_t words[4];
  std::memcpy(words, session->state(cursorName).data(), sizeof words);
  return {words[0], static_cast<Phase>(words[1]), words[2],
          static_cast<uint64_t>(words[3])};
}

void TaskMasks::put(const Cursor &cursor) {
  int64_t words[4] = {cursor.task, static_cast<int64_t>(cursor.phase), cursor.begin,
                      static_cast<int64_t>(cursor.learned)};
  std::memcpy(session->state(cursorName).data(), words, sizeof words);
}

void TaskMasks::setScalar(const char *name, int64_t value) {
  if (isPacked)
    valuesOf<float>(*session, name)[0] = static_cast<float>(value);
}

/// Moments of what another task has trained would move what this one trains.
void TaskMasks::clearMoments() {
  const auto *tensors = session->plan().raw().state();
  for (uint32_t i = 0; i < sizeOf(tensors); ++i) {
    const fbs::StateTensor *tensor = tensors->Get(i);
    if (tensor->role() == fbs::Role::moment)
      fillTensor(static_cast<DType>(tensor->dtype()),
                 session->state(viewOf(tensor->name())).data(), tensor->size(),
                 tensor->fill());
  }
}

void TaskMasks::copyOwn(int64_t task, bool toTask) {
  for (uint32_t i = 0; i < sizeOf(table->own()); ++i) {
    std::string name = textOf(table->own()->Get(i));
    std::span<uint8_t> live = session->state(stateOf(name));
    std::span<uint8_t> kept = ownOf(*session, name, task);
    std::memcpy(toTask ? kept.data() : live.data(), toTask ? live.data() : kept.data(),
                live.size());
  }
}

Status TaskMasks::begin(int64_t task) {
  Cursor now = cursor();
  if (session->pendingMicroBatches() > 0)
    return Status::usage("a task begins between windows; flush before");
  bool runs = now.phase == Phase::training || now.phase == Phase::retraining;
  if (runs && now.task == task)
    return Status::success();
  if (runs)
    return Status::refused("task '" + nameOf(now.task) +
                           "' has not ended: go on with "
                           "it, until its last update, before '" +
                           nameOf(task) + "' begins");
  if (now.hasLearned(task))
    return Status::refused("task '" + nameOf(task) +
                           "' has been learned; what it has kept changes no more");
  if (isPacked && task > 1 && !now.hasLearned(task - 1))
    return Status::refused("task '" + nameOf(task) +
                           "' builds on those before it: learn "
                           "'" +
                           nameOf(task - 1) + "' first");
  if (isPacked) {
    bool isFree = false;
    for (uint32_t i = 0; i < sizeOf(table->weights()) && !isFree; ++i) {
      auto mask = valuesOf<int8_t>(*session, "mask/" + textOf(table->weights()->Get(i)));
      isFree = std::ranges::find(mask, freeTask) != mask.end();
    }
    if (!isFree)
      return Status::refused("no element is free for task '" + nameOf(task) +
                             "': the tasks before have kept all; a smaller "
                             "'continual.masks.share' leaves some");
  }
  if (now.phase == Phase::ended)
    clearMoments();
  setScalar("task/trains", freeTask);
  setScalar("task/limit", freeTask);
  now.task = task, now.phase = Phase::training, now.begin = session->updates();
  put(now);
  return Status::success();
}

/// Of each weight by itself. Equal magnitudes: the first ones stay.
Result<uint64_t> TaskMasks::keepLargest(int64_t task) {
  uint64_t kept = 0;
  for (uint32_t i = 0; i < sizeOf(table->weights()); ++i) {
    std::string name = textOf(table->weights()->Get(i));
    std::span<int8_t> mask = valuesOf<int8_t>(*session, "mask/" + name);
    std::span<float> w = valuesOf<float>(*session, stateOf(name));
    std::vector<size_t> candidates;
    for (size_t k = 0; k < mask.size(); ++k)
      if (mask[k] == freeTask)
        candidates.push_back(k);
    size_t count = static_cast<size_t>(
        std::ceil(table->share() * static_cast<double>(candidates.size())));
    count = std::min(count, candidates.size());
    auto isLarger = [&](size_t a, size_t b) {
      auto size = [](float x) { return std::isnan(x) ? INFINITY : std::fabs(x); };
      float x = size(w[a]), y = size(w[b]);
      return x != y ? x > y : a < b;
    };
    std::ranges::sort(candidates, isLarger);
    for (size_t k = 0; k < candidates.size(); ++k)
      if (k < count)
        mask[candidates[k]] = static_cast<int8_t>(task);
      else
        w[candidates[k]] = 0;
    kept += count;
  }
  return kept;
}

Status TaskMasks::prune() {
  Cursor now = cursor();
  if (!isPacked || now.phase != Phase::training)
    return Status::success();
  if (auto kept = keepLargest(now.task); !kept)
    return kept.status();
  setScalar("task/trains", now.task);
  now.phase = Phase::retraining;
  put(now);
  return Status::success();
}

Status TaskMasks::end() {
  if (Status status = prune(); !status.ok())
    return status;
  Cursor now = cursor();
  if (now.phase != Phase::training && now.phase != Phase::retraining)
    return Status::refused("no task trains that could end");
  copyOwn(now.task, /*toTask=*/true);
  for (uint32_t i = 0; !isPacked && i < sizeOf(table->weights()); ++i) {
    std::string name = textOf(table->weights()->Get(i));
    packBits(valuesOf<float>(*session, stateOf(name) + ".score"),
             session->state("mask/" + nameOf(now.task) + "/" + name));
  }
  now.phase = Phase::ended;
  now.learned |= uint64_t{1} << (now.task - 1);
  put(now);
  return Status::success();
}

Status TaskMasks::afterUpdate(int64_t updates, int64_t target) {
  Cursor now = cursor();
  int64_t length = target - now.begin;
  int64_t first =
      length - static_cast<int64_t>(table->retrain() * static_cast<double>(length));
  if (now.phase == Phase::training && updates - now.begin >= first)
    if (Status status = prune(); !status.ok())
      return status;
  return updates >= target ? end() : Status::success();
}

void TaskView::replace(const std::string &name, std::span<const uint8_t> bytes) {
  std::span<uint8_t> live = session.state(name);
  before.emplace_back(name, std::vector<uint8_t>(live.begin(), live.end()));
  std::memcpy(live.data(), bytes.data(), live.size());
}

Result<std::unique_ptr<TaskView>> TaskView::enter(Session &session, int64_t task) {
  auto masks = TaskMasks::open(session);
  if (!masks)
    return masks.status();
  TaskMasks::Cursor now = masks->cursor();
  const fbs::Masks &table = *session.plan().raw().masks();
  std::unique_ptr<TaskView> view(new TaskView(session));
  if (task < 1 || task > static_cast<int64_t>(sizeOf(table.tasks())))
    return Status::usage("task " + std::to_string(task) + " is none of the plan's");
  std::string name = textOf(table.tasks()->Get(static_cast<uint32_t>(task - 1)));
  if (!now.hasLearned(task)) {
    if (now.task == task)
      return view;
    return Status::refused("task '" + name +
                           "' has not been learned: train with --task " + name);
  }
  for (uint32_t i = 0; i < sizeOf(table.own()); ++i) {
    std::string own = textOf(table.own()->Get(i));
    view->replace(stateOf(own), ownOf(session, own, task));
  }
  if (viewOf(table.kind()) == "packnet") {
    float limit = static_cast<float>(task);
    view->replace("task/limit", {reinterpret_cast<uint8_t *>(&limit), sizeof limit});
    return view;
  }
  for (uint32_t i = 0; i < sizeOf(table.weights()); ++i) {
    std::string weight = textOf(table.weights()->Get(i));
    std::span<const uint8_t> bits = session.state("mask/" + name + "/" + weight);
    std::vector<float> scores(session.state(stateOf(weight) + ".score").size() /
                              sizeof(float));
    for (size_t k = 0; k < scores.size(); ++k)
      scores[k] = ((bits[k / 8] >> (k % 8)) & 1) ? 1.0f : -1.0f;
    view->replace(stateOf(weight) + ".score",
                  {reinterpret_cast<uint8_t *>(scores.data()), scores.size() * 4});
  }
  return view;
}

TaskView::~TaskView() {
  for (auto &[name, bytes] : before)
    std::memcpy(session.state(name).data(), bytes.data(), bytes.size());
}

} // namespace sluice
