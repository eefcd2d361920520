#pragma once
// Which tensors of a plan lie in the host's memory while no launch needs them: values
// that the backward part reads late, moments, parameters. The third way beside keeping a
// value and running its operation again; the programs are those of one choice between
// these two, ordered.

#include "passes/planning/CopySchedule.h"
#include "passes/planning/Recompute.h"
#include "passes/planning/RecomputeCertificate.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

struct OffloadProblem {
  struct Program {
    StreamProblem stream;
    int64_t runs = 1;             ///< in one update; 0: its time does not count
    std::vector<int32_t> stateOf; ///< by tensor: index in `states`, -1: of the step
    std::vector<std::pair<int32_t, int32_t>> life; ///< by tensor of the step, if kept
    std::vector<char> movable;                     ///< by tensor of the step
  };
  struct State {
    int64_t sizeBytes = 0;
    bool movable = false;
  };
  std::vector<Program> programs;
  std::vector<State> states;
  int64_t alignBytes = 64; ///< sizes are rounded up to it
};

/// What lies in the host's memory: for each state, and each tensor of each program, 0 if
/// it does not, 1 if it does and its copies run beside launches, 2 if launches wait.
struct OffloadChoice {
  std::vector<char> states;
  std::vector<std::vector<char>> tensors;
};

struct OffloadPlan {
  OffloadChoice choice;
  int64_t deviceBytes = 0; ///< state, and the most live bytes of any program
  int64_t hostBytes = 0;
  double timeUs = 0; ///< of the programs, times their runs
};

/// What a choice leads to.
OffloadPlan measureOffload(const OffloadProblem &problem, OffloadChoice choice);
/// Nothing lies in the host's memory.
OffloadChoice keepAll(const OffloadProblem &problem);

/// Plans of falling bytes that do not depend on a budget. From `start` on, what helps at
/// the instant that needs most leaves the device, by the least predicted time for each
/// byte, until nothing does. The first is `start` itself.
std::vector<OffloadPlan> offloadPlans(const OffloadProblem &problem, OffloadChoice start);

/// Proof that no plan of a step within a budget of bytes takes less time, whatever it
/// keeps, runs again or moves: either at most `movedBytes` are in the host's memory at
/// the instant of `compute`, which then holds for a budget larger by as many; or more
/// are, and each of them goes over the link twice in a step (those that no launch of it
/// writes, at most `readOnlyBytes`, once). State that the step does not touch is not
/// counted in its budget at all.
struct OffloadCertificate {
  int64_t budgetBytes = 0; ///< for what the step holds and touches
  int64_t movedBytes = 0, readOnlyBytes = 0;
  double linkUs = 0;            ///< to move that much
  RecomputeCertificate compute; ///< for budgetBytes + movedBytes
  double boundUs = 0;           ///< the smaller of the two
};

double leastLinkUs(int64_t movedBytes, int64_t readOnlyBytes, const LinkRates &link);

/// Empty if the certificate proves its bound.
std::string checkOffloadCertificate(const RecomputeProblem &problem,
                                    const LinkRates &link,
                                    const OffloadCertificate &certificate);

} // namespace sluice
