#pragma once
// A plan in execution: its reservations, its kernels, its team of workers, and how
// far training has come. One session is used by one thread at a time; sessions are
// independent of each other.

#include "runtime/Arenas.h"
#include "runtime/BatchSource.h"
#include "runtime/CopyQueue.h"
#include "runtime/Executor.h"
#include "runtime/InputCheck.h"
#include "runtime/KernelTable.h"
#include "runtime/PlanReader.h"
#include "runtime/Reservation.h"
#include "runtime/SpikeWatch.h"
#include "runtime/ThreadTeam.h"
#include "runtime/Trace.h"
#include "runtime/UpdatePhase.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct SessionOptions {
  int threads = 0;                   // 0: as planned; at most as planned
  std::optional<FeatureLevel> level; // the best there is (KernelTable.h, chooseLevel)
  std::optional<uint64_t> seed;      // of the plan
  LentMemory state, step;            // mapped when not given
  LentMemory hostState, hostStep;    // the same, of the host's memory
  uint32_t variant = 0;              // rung of the memory ladder to begin on
  AllocatorHooks allocator;          // used for what is not given
  std::string weightsPath;           // of the initial state; default: beside the plan
  InputCheckOptions inputs;
  KernelResolver resolver; // in place of the built-in catalogue
  std::function<void(const std::string &)> log;
  /// Of a plan for several ranks: this rank's end of the group, which outlives the
  /// session. Without it the session evaluates and infers, alone.
  Communicator *communicator = nullptr;

  /// Fills the step reservation before every program, to see what is touched (law 1) and
  /// that nothing unwritten is read.
  std::optional<uint8_t> stepPattern;
  size_t traceEvents = 0; // per worker; 0: no trace
  /// Called with true before and with false after every program, on the caller's thread.
  std::function<void(bool)> aroundProgram;
  LaunchHook aroundLaunch;
  CopyHook aroundCopy;
  CollectiveHook aroundCollective;
};

struct StepResult {
  double lossSum = 0, lossCount = 0; // of this micro-batch
  bool updated = false;              // the window is complete
  double windowLossSum = 0,
         windowLossCount = 0;     // since the last update, this one included
  std::optional<float> gradNorm;  // of an update, when the plan clips
  std::optional<float> lossScale; // of this step, when the plan scales the loss
  bool skipped = false; // an update that changes nothing: a gradient is not finite, or
  bool outlier = false; // its norm is unusual
  std::optional<double> fluctuation; // of the loss, where it has cut the rates
  std::string nonFinite; // with an error at the floor of the scale: where it began

  double loss() const { return lossCount > 0 ? lossSum / lossCount : 0; }
  double windowLoss() const {
    return windowLossCount > 0 ? windowLossSum / windowLossCount : 0;
  }
};

/// A value of a program that has run; the data stays valid until the next program runs.
struct OutputView {
  const fbs::Port *port = nullptr;
  const uint8_t *data = nullptr;
  size_t bytes = 0; // of the valid samples
};

class Session {
public:
  /// Reserves memory, binds kernels, starts the team and sets the initial state.
  static Result<std::unique_ptr<Session>> create(PlanPtr plan,
                                                 SessionOptions options = {});

  const Plan &plan() const { return *planPtr; }
  const PlanPtr &planHandle() const { return planPtr; }
  FeatureLevel level() const { return kernels.level; }
  int threads() const { return team->size(); }

  /// Trains on one micro-batch; updates when the window of `accumulate` micro-batches is
  /// complete. A batch that is refused changes nothing. Of several ranks each has a
  /// window of its own; the update is that of all, and so are its loss and `samples`.
  Status step(const Batch &batch, StepResult &result);
  /// Updates from a window that is not complete; nothing to do when it is empty
  /// (result.updated says so). Of several ranks, those that have not completed their
  /// window when others have, even one without a micro-batch: they share the update.
  Status flush(StepResult &result);
  /// Applies gradients that wait, oldest first, where the plan's groups interleave or are
  /// deferred; counts no update of the session. Every rank calls it. Not inside a window.
  Status applyPending();
  bool hasPending() const { return phase.hasWaiting(); }
  /// Runs the forward and backward part of a batch for its values alone, and says which
  /// operation is the first to give one that is not finite; empty when all are finite.
  /// Nothing changes but outputs. Not inside a window.
  std::string findNonFinite(const Batch &batch);
  Status eval(const Batch &batch, StepResult &result);
  Status infer(const Batch &batch);
  /// The gradients of the batch's sum of losses, as outputs "grad/NAME"; changes no
  /// state. Of a batch of one sample they are that sample's.
  Status probe(const Batch &batch, StepResult &result);
  /// The sums over the batch's samples of their squared gradients, as outputs
  /// "fisher/NAME" (runtime/continual); changes no state. `label`: the class, where the
  /// plan's Fisher is of all classes.
  Status fisher(const Batch &batch, int64_t label, StepResult &result);

  /// Of the program that ran last.
  Result<OutputView> output(std::string_view name) const;
  /// Its shape: without what a batch was filled up with by its count, and after `infer`
  /// by its shapes.
  Result<std::vector<int64_t>> outputShape(std::string_view name) const;

  /// Goes on with the programs of another rung of the memory ladder. The bits of what
  /// follows do not depend on it; outputs of the last program are gone. When its step
  /// reservation cannot be had, all stays as it was.
  Status useVariant(uint32_t rung);
  uint32_t variant() const { return rungIndex; }

  int64_t updates() const { return updatesDone; }
  /// Of them: those that the loss scale has skipped, or whose gradient was an outlier.
  /// Rates and bias corrections go by the others.
  int64_t skippedUpdates() const;
  /// Undoes the last update, which was an outlier, in a plan that runs those again:
  /// `firstSample` is the first of its window, which comes next.
  void takeBackOutlier(int64_t firstSample);
  /// What the rule for losses that fluctuate multiplies rates by.
  double spikeFactor() const { return spikes.factor(); }
  /// The program that ran last, whose outputs can be read; null if there is none.
  const fbs::Program *lastRun() const {
    return lastProgram ? lastProgram->program : nullptr;
  }
  /// Samples of training consumed: where the data goes on.
  int64_t samples() const { return samplesDone; }
  /// Where the data of this rank goes on: its part of the next window begins behind those
  /// of the ranks before it, when batches are full.
  int64_t nextSample() const;
  /// Of the batch that ran last.
  uint32_t lastBucket() const { return bucketOfLast; }
  /// The batch size of a bucket of shapes.
  int64_t batchOf(uint32_t bucket) const {
    return planPtr->variant(bucket, rungIndex).batch;
  }
  int64_t pendingMicroBatches() const { return pending; }
  uint64_t seed() const { return seedValue; }

  /// Of the group it trains in; 0 of 1 without one.
  int rank() const { return sharesUpdates() ? options.communicator->rank() : 0; }
  int ranks() const { return sharesUpdates() ? options.communicator->size() : 1; }
  /// Null when it trains alone.
  Communicator *communicator() const {
    return sharesUpdates() ? options.communicator : nullptr;
  }
  /// Refused on all ranks unless they have the same state. Every rank calls it.
  Status agreeOnState();

  /// The rate of the next update. The first group when no name is given.
  Result<double> rate(std::string_view group = {}) const;
  /// A fixed rate in place of the group's schedule; NaN returns to the schedule.
  Status setRate(std::string_view group, double rate);
  /// A hyper-parameter of the group from its next update on, by its name in the spec
  /// ("beta1", "weight_decay", ...); NaN returns to the plan's. Without a group
  /// "clip_max".
  Result<double> hyper(std::string_view group, std::string_view name) const;
  Status setHyper(std::string_view group, std::string_view name, double value);
  /// A frozen group keeps every bit of its parameters and moments, does not count updates
  /// and is no part of the gradient's norm.
  Result<bool> frozen(std::string_view group) const;
  Status setFrozen(std::string_view group, bool frozen);

  /// What differs from the plan's hyper-parameters, as text for checkpoints: all or
  /// nothing of it comes back by clearChanges and applyChange.
  std::vector<std::pair<std::string, std::string>> changes() const;
  void clearChanges();
  Status applyChange(std::string_view key, const std::string &text);

  /// The bytes of a state tensor; empty when there is none of that name.
  std::span<uint8_t> state(std::string_view name);
  std::span<const uint8_t> state(std::string_view name) const;
  /// `bytes` must be the tensor's size.
  Status readState(std::string_view name, void *target, size_t bytes) const;
  Status writeState(std::string_view name, const void *source, size_t bytes);

  /// A parameter or buffer by the model's name as f32 values, in whatever form the plan
  /// stores it. Writing rounds to the nearest where the plan keeps no master.
  Status readParameter(std::string_view name, std::span<float> values) const;
  Status writeParameter(std::string_view name, std::span<const float> values);

  /// Sets every parameter and buffer from a safetensors file, by name, with or without
  /// the prefix "param/", converted to the form the plan stores it in. All or nothing.
  Status loadWeights(const std::string &path);

  /// Restored from a checkpoint, which has set the saved tensors before.
  void resumeAt(int64_t updates, int64_t samples, uint64_t seed);

  /// Highest byte of the step reservation that a program has changed from the pattern,
  /// plus one, over all programs since the variant is in use. Needs options.stepPattern.
  uint64_t stepBytesTouched() const;
  /// The same, of the host's step reservation.
  uint64_t hostStepBytesTouched() const;
  const TraceRing *trace() const { return ring.get(); }
  void log(const std::string &line) const {
    if (options.log)
      options.log(line);
  }

private:
  enum ProgramKind {
    stepProgram,
    microProgram,
    closeRankProgram,
    updateProgram,
    evalProgram,
    inferProgram,
    probeProgram,
    fisherProgram,
    programKinds
  };
  struct LoadedProgram {
    const fbs::Program *program = nullptr;
    int64_t batch = 0; // samples it is planned for
    std::unique_ptr<Executor> executor;
    const float *lossSum = nullptr, *lossCount = nullptr, *gradNorm = nullptr;
    const int64_t *nonFinite = nullptr; // index of the first gradient that is, or -1
    const int64_t *outlier = nullptr;   // 1 where the norm is unusual
  };
  struct HyperControl {
    std::string_view name;
    double initial = 0;             // the plan's, up to its first change
    double standard = 0, fixed = 0; // the plan's by now; what stands in its place
    bool isFixed = false;
    float *value = nullptr, *rest = nullptr; // rest: 1 - value
    double current() const { return isFixed ? fixed : standard; }
    void write() const;
  };
  struct GroupControls {
    const fbs::ParamGroup *group = nullptr;
    float *lr = nullptr, *bc1 = nullptr, *bc2 = nullptr;
    float *nadamG = nullptr, *nadamM = nullptr, *radamR = nullptr;
    double fixedRate = 0; // when `hasFixedRate`
    bool hasFixedRate = false;
    std::vector<HyperControl> hyper;
    float *active = nullptr;
    int64_t *update = nullptr;
    bool frozen = false;
    int64_t skipped = 0; // updates it was frozen in, or had no turn
    bool isTurn = true;  // the update of now is one of the group
    /// Of NAdam; nothing while it is that of unchanged values.
    std::optional<double> nadamProduct;
    double currentOf(std::string_view name, double otherwise) const;
  };
  struct Controls {
    int64_t *seed = nullptr, *update = nullptr, *sample = nullptr, *valid = nullptr,
            *label = nullptr, *rank = nullptr, *step = nullptr, *pending = nullptr,
            *skipped = nullptr;
    int64_t *outliers = nullptr;
    float *scale = nullptr;
    std::vector<GroupControls> groups;
    HyperControl clipMax;
  };

  Session() = default;
  Status setUp();
  Status reserve();
  Arenas arenas() const {
    return {stateMemory.data(), stepMemory.data(), hostStateMemory.data(),
            hostStepMemory.data()};
  }
  uint8_t *tensorData(const fbs::StateTensor &tensor) const {
    return arenas().of(tensor.space()) + tensor.offset();
  }
  Status reserveHost(const PlanMemory &memory);
  void fillStep(bool isFresh = false);
  void loadPrograms();
  void load(std::string_view name, const PlanVariant &variant, LoadedProgram &loaded);
  void findScalars(LoadedProgram &loaded);
  template <class T> T *stateScalar(const std::string &name) {
    const fbs::StateTensor *tensor = planPtr->state(name);
    // The reader has checked the types of these.
    return tensor ? reinterpret_cast<T *>(stateMemory.data() + tensor->offset())
                  : nullptr;
  }
  void findControls();
  void findHyper();
  HyperControl hyperControl(const fbs::StateTensor &tensor, std::string_view name);
  Result<HyperControl *> findHyper(std::string_view group, std::string_view name);
  GroupControls *findGroup(std::string_view name);
  const GroupControls *findGroup(std::string_view name) const;
  Status unknownGroup(std::string_view name) const;
  Status initialState();
  Status initialTensor(const fbs::StateTensor &tensor, const class SafetensorsFile *file);

  /// What depends on the state alone is the same in every bucket.
  Result<LoadedProgram *> find(ProgramKind kind, uint32_t bucket = 0);
  Status checkCount(const LoadedProgram &loaded, int64_t count) const;
  uint64_t stepBytes() const { return planPtr->memory(rungIndex).stepBytes; }
  Status feed(const LoadedProgram &loaded, const Batch &batch, int64_t firstSample);
  void writeControls(int64_t firstSample, int64_t valid);
  void writeGroupControls(const GroupControls &group) const;
  int64_t doneIn(const GroupControls &group) const;
  double nadamProductOf(const GroupControls &group) const;
  void followChanges(int64_t before);
  void countUpdate(GroupControls &group, bool isSkipped);
  Status execute(LoadedProgram &loaded, int64_t valid);
  void cropOutputs(const LoadedProgram &loaded, const Batch &batch);
  Result<uint32_t> findOutput(std::string_view name) const;
  Status closeRank();
  bool addsGradients() const {
    return std::string_view(planPtr->trainingProgram()) == "micro";
  }

  // SessionPending.cpp
  void chooseTurns();
  Result<LoadedProgram *> findUpdate(int64_t step);
  void advanceNadam(GroupControls &group);

  // SessionRanks.cpp
  struct LossRecord;
  struct WindowHead;
  static constexpr size_t headWords = 2;
  bool sharesUpdates() const { return options.communicator && planPtr->ranks() > 1; }
  Status checkRanks() const;
  Status joinRanks();
  Status checkMayTrain() const;
  void noteLoss(const StepResult &result);
  Status closeWindow(int64_t microBatches);

  Status measure(ProgramKind kind, const Batch &batch, StepResult &result);
  Status update(LoadedProgram &loaded, StepResult &result);
  int64_t appliedUpdates() const { return updatesDone - skippedUpdates(); }
  Status scaleStuck(int64_t parameter) const;
  template <class Visit> void visitOwnState(const Visit &visit); // SessionRerun.cpp
  void keepForRerun();
  Status explained(Status status, const Batch &batch, StepResult &result);
  double rateOf(const GroupControls &controls) const;

  PlanPtr planPtr;
  SessionOptions options;
  KernelTable kernels;
  Reservation stateMemory, stepMemory, hostStateMemory, hostStepMemory;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<CopyQueue> copyQueue; // where the plan has copies
  std::unique_ptr<CommQueue> commQueue; // where it has collectives, and others to meet
  std::unique_ptr<TraceRing> ring;
  std::vector<std::array<LoadedProgram, programKinds>> programs; // by bucket
  std::vector<LoadedProgram> turns; // update.P, where groups interleave
  UpdatePhase phase;
  uint32_t rungIndex = 0;                        // of the memory ladder
  uint64_t stepTouched = 0, hostStepTouched = 0; // by programs before the last one
  Controls controls;
  SpikeWatch spikes;
  std::vector<uint8_t> keptState; // before an update that may be an outlier
  uint64_t seedValue = 0;
  int64_t updatesDone = 0, samplesDone = 0, pending = 0;
  int64_t windowFirst = 0; // sample that all ranks' window begins with
  double windowLossSum = 0, windowLossCount = 0;
  const LoadedProgram *lastProgram = nullptr;
  int64_t lastValid = 0;
  Status broken;                          // an error that has left the state half updated
  std::vector<uint64_t> windowRecords;    // by rank: head, then a loss per micro-batch
  std::vector<ElementRange> windowShards; // of it, by rank
  uint32_t bucketOfLast = 0;
  /// By output of the last program, where a part of it is left out. The room is kept.
  struct CroppedOutput {
    bool isUsed = false;
    std::vector<int64_t> shape;
    std::vector<uint8_t> data;
  };
  std::vector<CroppedOutput> croppedOutputs;
};

} // namespace sluice
