#pragma once
// Recompute placement: which values of the forward part of a training step are kept until
// the backward part reads them, and which are computed again, for the least time within a
// budget of bytes. Frontier.h builds all plans of a step, RecomputeBound.h proves how
// good they are, RecomputeCertificate.h checks both.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

/// A training step. Operations are in program order, which must be topological; those
/// from the first backward one on run exactly once, and in this order in every plan.
struct RecomputeProblem {
  struct Value {
    int64_t sizeBytes =
        0; ///< of the whole class of aliases; 0 for what lies in the state
    bool preexisting = false; ///< an input or state: live from the start, never computed
    bool liveAtEnd = false;   ///< an output of the step
    bool keep = false;        ///< the user's mark: its operation is not run again
  };
  struct Op {
    double costUs = 0;
    std::vector<int32_t> inputs, outputs; ///< a value has at most one producer
    int64_t workspaceBytes = 0;           ///< live during the operation only
    bool backward = false;                ///< backward, update: never run again
    bool recomputable = true; ///< false for collectives, writes of state and statistics
    int32_t block = -1;       ///< layer for the policies `every` and `sqrt`; -1 outside
    double againUs = -1;      ///< of a run that is not the first; below 0: `costUs`
    /// (input, output): the output takes the input's bytes where no later run reads
    /// these; in order, each value once.
    std::vector<std::pair<int32_t, int32_t>> inPlace = {};
    /// Inputs that a further run may do without, when not all its results are wanted.
    /// Plans provide them; bounds on time do not rely on them.
    std::vector<int32_t> optionalInputs = {};

    double timeUs(bool again) const { return again && againUs >= 0 ? againUs : costUs; }
  };
  std::vector<Value> values;
  std::vector<Op> ops;
  int64_t alignBytes = 64; ///< sizes are rounded up to it
  /// False: a bound holds also for schedules that move backward operations as far as
  /// what they read allows.
  bool backwardInOrder = true;
};

/// One run of an operation. It reads the latest instance of each input; an instance lives
/// from the run that writes it to the last run that reads it.
struct Execution {
  int32_t op = -1;
  bool again = false; ///< a clone: the operation has run before
};

struct RecomputeSolution {
  std::string error; ///< empty unless there is no plan
  std::vector<Execution> schedule;
  std::vector<int32_t> kept; ///< forward values whose first instance the backward part
                             ///< or a clone reads
  double timeUs = 0;         ///< sum over the schedule
  double onceUs = 0;         ///< every operation once
  int64_t peakBytes = 0;     ///< largest sum of live bytes
  int32_t peakAt = -1;       ///< index in the schedule where the peak is reached first
  std::string method;        ///< which algorithm found it, for the report
};

enum class RecomputeKind {
  None,    ///< nothing runs again
  Every,   ///< values between every N-th border of blocks run again
  Sqrt,    ///< Chen et al. (2016): N is the square root of the number of blocks
  Regions, ///< the interior of named regions runs again, all else is kept
};

struct RecomputePolicy {
  RecomputeKind kind = RecomputeKind::None;
  int32_t every = 2;
  std::vector<std::vector<int32_t>> regions; ///< operations of each, convex
};

/// The plan of a fixed policy. Errors: a malformed problem, a region that is not convex.
/// Where no operation has a block, each stretch between two points at which a single
/// value is live counts as one.
RecomputeSolution planByPolicy(const RecomputeProblem &problem,
                               const RecomputePolicy &policy);

/// What is live at the peak of a plan: values, largest first.
std::vector<int32_t> liveAtPeak(const RecomputeProblem &problem,
                                const RecomputeSolution &solution);

} // namespace sluice
