#pragma once
// The diagonal of the Fisher information by the program 'fisher': sums over samples of
// squared gradients of single samples, in double, in the host's memory. They are no state
// of the plan: an estimate that is given up leaves no trace.

#include "runtime/Session.h"
#include "runtime/continual/HeldState.h"
#include "runtime/probe/SampleSlicer.h"

#include <memory>
#include <vector>

namespace sluice {

class FisherEstimate {
public:
  /// At the session's weights. Refused when the plan has no program 'fisher'.
  static Result<FisherEstimate> open(Session &session);

  /// Adds all samples of a batch. Refused, with nothing added, where a gradient is not
  /// finite.
  Status add(const Batch &batch);

  int64_t samples() const { return done; }
  const HeldState &held() const { return state; }
  /// The mean for parameter `index` of held(): divided by what the samples count in the
  /// loss, so that of losses over positions it is the diagonal of the mean loss.
  std::vector<float> mean(size_t index) const;
  /// What the samples count in the loss; 0: none has a label that counts.
  double count() const { return lossCount; }

private:
  FisherEstimate(Session &session, HeldState state)
      : session(&session), state(std::move(state)),
        slicer(std::make_unique<SampleSlicer>(session.plan(), "fisher")) {}
  Status addWhole(const Batch &batch);
  Status collect();

  Session *session;
  HeldState state;
  std::unique_ptr<SampleSlicer> slicer;
  std::vector<std::vector<double>> sums, pending; // by held parameter
  int64_t done = 0;
  double lossCount = 0, pendingCount = 0;
};

} // namespace sluice
