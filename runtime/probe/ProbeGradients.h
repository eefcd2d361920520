#pragma once
// The gradients of the program 'probe', by parameter.

#include "runtime/Session.h"
#include "runtime/probe/Importance.h"
#include "runtime/probe/SampleSlicer.h"

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

} // namespace sluice
