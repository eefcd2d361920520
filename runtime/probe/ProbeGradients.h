#pragma once
// The gradients of the program 'probe', by parameter.

#include "runtime/Session.h"
#include "runtime/probe/Importance.h"

#include <functional>
#include <string>
#include <vector>

namespace sluice {

class ProbeGradients {
public:
  /// Refused when the plan has no program 'probe', or gradients of other types.
  static Result<ProbeGradients> open(Session &session);

  /// Of all parameters with a gradient, by their weights now.
  Result<Importance> importance(ImportanceBlocks blocks) const;

  /// Runs a batch. Refused naming what is not finite. `sample` is for messages.
  Status run(const Batch &batch, int64_t sample, StepResult &result);

  /// Of the batch that has run, in the order of importance().
  size_t size() const { return names.size(); }
  const std::vector<std::string> &parameters() const { return names; }
  std::span<const float> gradient(size_t parameter) const;

  Session &session() const { return *owner; }

private:
  Status checkFinite(int64_t sample, const StepResult &result) const;

  Session *owner = nullptr;
  std::vector<std::string> names; // of parameters
};

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

/// Calls `use` for the batches of the first samples of the source, cut to these.
Status forSamples(BatchSource &source, int64_t samples,
                  const std::function<Status(Batch &)> &use);

} // namespace sluice
