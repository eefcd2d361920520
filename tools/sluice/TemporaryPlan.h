#pragma once
// Plans that a command compiles for itself and removes at its end.

#include "ir/TrainingSpec.h"
#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"

#include <memory>
#include <string>

namespace sluice::cli {

/// Whether the file is a plan, and not a model.
bool isPlanFile(const std::string &path);

/// The spec a plan was made from, with the shapes of its inputs: what was given to
/// `compile` beside the spec is in the plan alone.
Result<TrainingSpec> specOfPlan(const Plan &plan);

/// Without what decides about memory alone: no number changes.
void dropMemoryDecisions(TrainingSpec &spec);

class TemporaryPlan {
public:
  /// In all shapes of the spec. `samples`: of a batch, where the model leaves that open;
  /// 0: the spec's. `of`: a plan of the same model; another one's is refused.
  static Result<std::unique_ptr<TemporaryPlan>> compile(const std::string &model,
                                                        const TrainingSpec &spec,
                                                        int64_t samples = 0,
                                                        const Plan *of = nullptr);
  ~TemporaryPlan();
  TemporaryPlan(const TemporaryPlan &) = delete;
  TemporaryPlan &operator=(const TemporaryPlan &) = delete;

  const std::string &path() const { return planPath; }

private:
  TemporaryPlan() = default;
  std::string folder, planPath;
};

} // namespace sluice::cli
