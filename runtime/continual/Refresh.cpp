#include "runtime/continual/Refresh.h"

#include "runtime/continual/Consolidation.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

/// The batches of a source for training, with the inputs of the program fisher.
class FisherInputs final : public BatchSource {
public:
  FisherInputs(const Session &session, BatchSource &source) : source(source) {
    const Plan &plan = session.plan();
    std::vector<InputSpec> given = plan.inputs(plan.accumulate() > 1 ? "micro" : "step");
    if (given.empty())
      given = plan.inputs(plan.program("micro") ? "micro" : "step");
    for (const InputSpec &input : plan.inputs("fisher"))
      for (size_t i = 0; i < given.size(); ++i)
        if (given[i].name == input.name)
          order.push_back(i);
  }
  int64_t size() const override { return source.size(); }
  Status seek(int64_t sample) override { return source.seek(sample); }
  Status next(Batch &out) override {
    Batch given;
    if (Status status = source.next(given); !status.ok())
      return status;
    out = given;
    out.data.clear();
    out.shapes.clear();
    for (size_t i : order) {
      if (i < given.data.size())
        out.data.push_back(given.data[i]);
      if (i < given.shapes.size())
        out.shapes.push_back(given.shapes[i]);
    }
    return Status::success();
  }

private:
  BatchSource &source;
  std::vector<size_t> order;
};

} // namespace

Refresh::Refresh(const Session &session, const BatchSource &source)
    : last(session.samples()) {
  const fbs::Continual *table = session.plan().raw().continual();
  if (table && table->refresh() > 0)
    interval = std::max<int64_t>(
        1, std::llround(table->refresh() * static_cast<double>(source.size())));
}

Status Refresh::after(Session &session, BatchSource &source) {
  int64_t before = last;
  last = session.samples();
  if (interval == 0 || before / interval == last / interval)
    return Status::success();
  int64_t most = std::min(session.plan().raw().continual()->samples(), interval);
  ConsolidateOptions options;
  options.samples = std::min({most, last, source.size()});
  options.firstSample = last - *options.samples;
  FisherInputs data(session, source);
  auto report = consolidate(session, data, options);
  if (!report)
    return report.status();
  ++done;
  return source.seek(last);
}

} // namespace sluice
