#include "runtime/continual/Consolidation.h"

#include "runtime/continual/Fisher.h"
#include "runtime/continual/HeldState.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice {

namespace {

/// The state after a consolidation, before it is written.
struct Consolidated {
  std::vector<std::vector<float>> weights, importances; // by held parameter
  ConsolidateReport report;
};

int64_t tasksOf(const Session &session, const HeldState &state) {
  int64_t tasks = 0;
  std::memcpy(&tasks, session.state(state.counter()).data(), sizeof tasks);
  return tasks;
}

Status checkRoom(const Session &session, const HeldState &state) {
  if (session.pendingMicroBatches() > 0)
    return Status::usage(std::to_string(session.pendingMicroBatches()) + " of " +
                         std::to_string(session.plan().accumulate()) +
                         " micro-batches of the window are done; flush before "
                         "consolidating");
  int64_t tasks = tasksOf(session, state), room = state.options().tasks();
  if (state.options().gamma() < 0 && tasks >= room)
    return Status::refused("all " + std::to_string(room) +
                           " anchors of the plan hold a task; compile with more "
                           "'continual.ewc.tasks', or 'online: {gamma: G}', which has "
                           "one for any number of tasks");
  return Status::success();
}

/// What is new about a parameter since the last consolidation.
std::vector<float> newImportance(const Session &session, const HeldState &state,
                                 size_t index, const FisherEstimate *fisher,
                                 std::span<const float> weights) {
  if (fisher)
    return fisher->mean(index);
  const HeldParameter &parameter = state.parameters()[index];
  std::vector<float> added = state.values(session, state.path(parameter));
  std::vector<float> anchor = state.values(session, state.anchor(parameter));
  for (size_t i = 0; i < added.size(); ++i) {
    double way = static_cast<double>(weights[i]) - anchor[i];
    added[i] = static_cast<float>(std::max(double{added[i]}, 0.0) /
                                  (way * way + state.options().xi()));
  }
  return added;
}

Result<Consolidated> compute(const Session &session, const HeldState &state,
                             const FisherEstimate *fisher) {
  Consolidated next;
  int64_t tasks = tasksOf(session, state);
  double gamma = state.options().gamma(), elements = 0, sum = 0, added = 0;
  for (size_t p = 0; p < state.parameters().size(); ++p) {
    const HeldParameter &parameter = state.parameters()[p];
    std::vector<float> &weights = next.weights.emplace_back(parameter.elements);
    if (Status status = session.readParameter(parameter.name, weights); !status.ok())
      return status;
    std::vector<float> fresh = newImportance(session, state, p, fisher, weights);
    std::vector<float> old(parameter.elements);
    if (gamma > 0 && tasks > 0)
      old = state.importances(session, parameter, 0);
    for (size_t i = 0; i < fresh.size(); ++i) {
      added += fresh[i];
      fresh[i] = static_cast<float>(gamma * old[i] * (gamma > 0) + fresh[i]);
      if (!std::isfinite(fresh[i]) || !std::isfinite(weights[i]))
        return Status::refused("an importance or weight of '" + parameter.name +
                               "' is not finite: nothing is consolidated");
      sum += fresh[i];
      next.report.importanceMost = std::max(next.report.importanceMost, double{fresh[i]});
    }
    elements += static_cast<double>(parameter.elements);
    next.importances.push_back(std::move(fresh));
  }
  next.report.tasks = tasks + 1;
  next.report.samples = fisher ? fisher->samples() : 0;
  next.report.importanceMean = elements > 0 ? sum / elements : 0;
  next.report.importanceAdded = elements > 0 ? added / elements : 0;
  return next;
}

void write(Session &session, const HeldState &state, const Consolidated &next) {
  int64_t task = state.options().gamma() < 0 ? next.report.tasks - 1 : 0;
  for (size_t p = 0; p < state.parameters().size(); ++p) {
    const HeldParameter &parameter = state.parameters()[p];
    state.setImportances(session, parameter, task, next.importances[p]);
    std::span<uint8_t> anchor = session.state(state.anchor(parameter, task));
    if (!anchor.empty())
      std::memcpy(anchor.data(), next.weights[p].data(), anchor.size());
    if (state.isSi())
      std::ranges::fill(session.state(state.path(parameter)), uint8_t{0});
  }
  std::memcpy(session.state(state.counter()).data(), &next.report.tasks,
              sizeof next.report.tasks);
}

/// The batches of `count` samples from `first` on, cut to these, into the estimate.
Status estimate(FisherEstimate &fisher, BatchSource &data, int64_t first, int64_t count) {
  Status status = data.seek(first);
  while (status.ok() && fisher.samples() < count) {
    Batch batch;
    status = data.next(batch);
    if (!status.ok())
      break;
    status = withFirst(batch, count - fisher.samples(),
                       [&](const Batch &cut) { return fisher.add(cut); });
  }
  return status;
}

} // namespace

Result<ConsolidateReport> consolidate(Session &session, const FisherEstimate *fisher) {
  auto state = HeldState::open(session.plan());
  if (!state)
    return state.status();
  if (Status status = checkRoom(session, *state); !status.ok())
    return status;
  if (!state->isSi() && (!fisher || fisher->samples() == 0))
    return Status::usage("there is no Fisher to consolidate: estimate it on the task's "
                         "data first");
  if (fisher && fisher->count() <= 0)
    return Status::refused("no label of the data counts in the loss: there is no Fisher");
  auto next = compute(session, *state, state->isSi() ? nullptr : fisher);
  if (!next)
    return next.status();
  write(session, *state, *next);
  return next->report;
}

Result<ConsolidateReport> consolidate(Session &session, BatchSource &data,
                                      const ConsolidateOptions &options) {
  auto state = HeldState::open(session.plan());
  if (!state)
    return state.status();
  if (state->isSi())
    return consolidate(session, nullptr);
  if (Status status = checkRoom(session, *state); !status.ok())
    return status;
  int64_t samples = options.samples.value_or(state->options().samples());
  if (samples < 1)
    return Status::usage("the Fisher of " + std::to_string(samples) +
                         " samples is asked for, expected at least 1");
  auto fisher = FisherEstimate::open(session);
  if (!fisher)
    return fisher.status();
  samples = std::min(samples, data.size());
  if (Status status = estimate(*fisher, data, options.firstSample, samples); !status.ok())
    return status;
  return consolidate(session, &*fisher);
}

Result<double> penaltyValue(const Session &session) {
  auto state = HeldState::open(session.plan());
  if (!state)
    return state.status();
  double total = 0;
  const char *strength = state->isSi() ? "si_lambda" : "ewc_lambda";
  for (const HeldParameter &parameter : state->parameters()) {
    double lambda = state->options().lambda(), sum = 0;
    for (uint32_t g = 0; g < sizeOf(session.plan().raw().groups()); ++g) {
      const fbs::ParamGroup &group = *session.plan().raw().groups()->Get(g);
      for (uint32_t m = 0; m < sizeOf(group.members()); ++m)
        if (viewOf(group.members()->Get(m)) == "param/" + parameter.name)
          if (auto found = session.hyper(viewOf(group.name()), strength))
            lambda = *found;
    }
    std::vector<float> weights(parameter.elements);
    if (Status status = session.readParameter(parameter.name, weights); !status.ok())
      return status;
    for (int64_t task = 0; task < state->anchors(session); ++task) {
      std::vector<float> anchor = state->values(session, state->anchor(parameter, task));
      std::vector<float> importance = state->importances(session, parameter, task);
      for (size_t i = 0; i < weights.size(); ++i) {
        double way = static_cast<double>(weights[i]) - anchor[i];
        sum += importance[i] * way * way;
      }
    }
    total += lambda / 2 * sum;
  }
  return total;
}

Status beginPath(Session &session) {
  const fbs::Continual *table = session.plan().raw().continual();
  if (!table || table->kind() != fbs::PenaltyKind::si)
    return Status::success();
  auto state = HeldState::open(session.plan());
  if (!state)
    return state.status();
  if (tasksOf(session, *state) > 0)
    return Status::success();
  for (const HeldParameter &parameter : state->parameters()) {
    std::span<uint8_t> anchor = session.state(state->anchor(parameter));
    Status status = session.readParameter(
        parameter.name, {reinterpret_cast<float *>(anchor.data()), parameter.elements});
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
