#pragma once
// Samples of a set of tensors, in batches, in their order.

#include "tests/passes/plan/PlanFixture.h"

namespace sluice {

class TensorSource final : public BatchSource {
public:
  TensorSource(const Plan &plan, const Values &values, int64_t count,
               std::string_view program = "probe")
      : count(count), batch(plan.batch()) {
    for (const InputSpec &input : plan.inputs(program)) {
      data.push_back(Running::bytesOf(values.at(input.name), input.dtype));
      sizes.push_back(input.sampleBytes());
    }
  }
  int64_t size() const override { return count; }
  Status seek(int64_t sample) override {
    at = sample;
    return Status::success();
  }
  Status next(Batch &out) override {
    out = {};
    int64_t first = at % count;
    out.count = std::min(batch, count - first);
    out.firstSample = at;
    for (size_t i = 0; i < data.size(); ++i)
      out.data.push_back(data[i].data() + static_cast<size_t>(first) * sizes[i]);
    at += out.count;
    return Status::success();
  }

private:
  int64_t count, batch, at = 0;
  std::vector<std::string> data;
  std::vector<size_t> sizes;
};

} // namespace sluice
