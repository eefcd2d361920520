#pragma once
// The session that a probe reads gradients or moments from.

#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TemporaryPlan.h"

namespace sluice::cli {

struct ProbeSubject {
  RunOptions run;          // its plan may be a model
  std::string model, spec; // of a plan its model, of a model its spec
  std::vector<std::string> sets;
  bool readsMoments = false; // no program is run
  int64_t samples = 0;       // of a batch, where a plan is made; 0: the spec's
};

class ProbeSession {
public:
  explicit ProbeSession(const ProbeSubject &subject)
      : run(subject.run), subject(subject) {}

  /// With the weights of --checkpoint or --weights, else those the plan starts from.
  Status open(const Console &console);
  Session &session() const { return *opened; }

private:
  Status openPlan();
  Status compileModel();
  Status compileBeside();
  Status compile(const std::string &model, const TrainingSpec &spec,
                 const Plan *of = nullptr);
  Status openState(const Console &console);
  Status loadTrainedWeights();
  Status copyWeights(const Console &console);

  RunOptions run; // of the plan that is run
  const ProbeSubject &subject;
  PlanPtr given;
  std::unique_ptr<TemporaryPlan> temporary;
  std::unique_ptr<Session> opened;
};

} // namespace sluice::cli
