#pragma once
// What a checkpoint holds after some steps, to compare plans by.

#include "tests/passes/plan/PlanFixture.h"

namespace sluice {

using State = std::map<std::string, std::string>;

/// Names of tensors that have other bytes.
inline std::vector<std::string> different(const State &a, const State &b) {
  std::vector<std::string> names;
  for (const auto &[name, bytes] : a)
    if (auto found = b.find(name); found == b.end() || found->second != bytes)
      names.push_back(name);
  return a.size() == b.size() ? names : std::vector<std::string>{"other tensors"};
}

/// Random parameters, then some steps: what a checkpoint holds.
inline State trained(const std::string &path, int threads) {
  Running running(path, threads);
  if (!running.session)
    return {};
  const Plan &plan = running.session->plan();
  unsigned seed = 90;
  for (const fbs::StateTensor *tensor : *plan.raw().state()) {
    if (tensor->role() != fbs::Role::parameter)
      continue;
    int64_t elements = 1;
    const auto *shape =
        sizeOf(tensor->value_shape()) ? tensor->value_shape() : tensor->shape();
    for (uint32_t d = 0; d < sizeOf(shape); ++d)
      elements *= shape->Get(d);
    std::vector<float> values;
    for (double value : uniform({elements}, -0.5, 0.5, seed++).reals)
      values.push_back(static_cast<float>(value));
    Status status = running.session->writeParameter(
        tensor->name()->string_view().substr(sizeof("param/") - 1), values);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  std::string program = plan.accumulate() > 1 ? "micro" : "step";
  for (int64_t k = 0; k < 4; ++k)
    running.step(inputsOf(plan, program, 30 + k), k * plan.batch());
  return running.saved();
}

} // namespace sluice
