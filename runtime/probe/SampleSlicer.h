#pragma once
// Parts of batches: single samples, and the first of them.

#include "runtime/Session.h"

#include <functional>
#include <string>
#include <vector>

namespace sluice {

/// Single samples out of batches.
class SampleSlicer {
public:
  SampleSlicer(const Plan &plan, std::string_view program)
      : plan(plan), program(program) {}
  /// Valid until the batch's source moves on or the next call.
  const Batch &slice(const Batch &batch, int64_t index);

private:
  const Plan &plan;
  std::string program;
  Batch one;
  std::vector<std::vector<int64_t>> shapes;
};

/// Calls `use` for a batch cut to its first `count` samples, if it has more.
Status withFirst(Batch &batch, int64_t count, const std::function<Status(Batch &)> &use);

/// Calls `use` for the batches of the first samples of the source, cut to these.
Status forSamples(BatchSource &source, int64_t samples,
                  const std::function<Status(Batch &)> &use);

} // namespace sluice
