#include "runtime/continual/Fisher.h"

#include <algorithm>
#include <cmath>

namespace sluice {

Result<FisherEstimate> FisherEstimate::open(Session &session) {
  auto state = HeldState::open(session.plan());
  if (!state)
    return state.status();
  if (state->isSi() || !session.plan().program("fisher"))
    return Status::refused("the plan has no program 'fisher'; it is part of plans with "
                           "'continual: {ewc: ...}' and the entry step");
  FisherEstimate made(session, std::move(*state));
  for (const HeldParameter &parameter : made.state.parameters()) {
    made.sums.emplace_back(parameter.elements);
    made.pending.emplace_back(parameter.elements);
  }
  return made;
}

/// What the program has just given, into `pending`.
Status FisherEstimate::collect() {
  for (size_t p = 0; p < pending.size(); ++p) {
    const std::string &name = state.parameters()[p].name;
    auto output = session->output("fisher/" + name);
    if (!output)
      continue; // evaluation does not depend on it
    std::vector<double> &sum = pending[p];
    if (output->port->dtype() != fbs::DType::f32 ||
        output->bytes != sum.size() * sizeof(float))
      return Status::damaged("the program 'fisher' gives no squares of '" + name +
                             "' of its size");
    const float *squares = reinterpret_cast<const float *>(output->data);
    double total = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += squares[i];
      total += squares[i];
    }
    if (!std::isfinite(total))
      return Status::refused("a squared gradient of '" + name +
                             "' is not finite: check the data and the weights");
  }
  return Status::success();
}

Status FisherEstimate::addWhole(const Batch &batch) {
  bool isExact = state.options().labels() == fbs::FisherLabels::all;
  int64_t draws = isExact ? std::max<int64_t>(state.options().classes(), 1) : 1;
  for (int64_t label = 0; label < draws; ++label) {
    StepResult result;
    Status status = session->fisher(batch, label, result);
    if (status.ok() && !std::isfinite(result.lossSum))
      status = Status::refused("the loss is not finite: check the data and the weights");
    if (status.ok())
      status = collect();
    if (!status.ok())
      return status;
    if (label == 0)
      pendingCount += result.lossCount;
  }
  return Status::success();
}

Status FisherEstimate::add(const Batch &batch) {
  for (std::vector<double> &sum : pending)
    std::ranges::fill(sum, 0);
  pendingCount = 0;
  Status status;
  if (!state.options().one_by_one())
    status = addWhole(batch);
  else
    for (int64_t i = 0; i < batch.count && status.ok(); ++i)
      status = addWhole(slicer->slice(batch, i));
  if (!status.ok())
    return status;
  for (size_t p = 0; p < sums.size(); ++p)
    for (size_t i = 0; i < sums[p].size(); ++i)
      sums[p][i] += pending[p][i];
  lossCount += pendingCount;
  done += batch.count;
  return status;
}

std::vector<float> FisherEstimate::mean(size_t index) const {
  std::vector<float> result(sums[index].size());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = lossCount > 0 ? static_cast<float>(sums[index][i] / lossCount) : 0;
  return result;
}

} // namespace sluice
