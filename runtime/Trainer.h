#pragma once
// The training loop: data, steps, evaluation, checkpoints.

#include "runtime/BatchSource.h"
#include "runtime/BestEvaluation.h"
#include "runtime/Checkpoint.h"
#include "runtime/Session.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct EvalReport {
  int64_t updates = 0; // of the session when it was evaluated
  int64_t samples = 0;
  int64_t skipped = 0; // at the end, when the model needs full batches
  double loss = 0;     // mean over everything that counts
};

/// After every batch of an evaluation: for metrics, from session.output(...) and the
/// batch.
using EvalBatchHook = std::function<Status(const Session &, const Batch &)>;

/// One epoch of the source through the program 'eval'.
Result<EvalReport> evaluate(Session &session, BatchSource &source,
                            const EvalBatchHook &onBatch = {});

struct TrainProgress {
  int64_t updates = 0; // in total, this one included
  int64_t target = 0;  // updates when training ends
  int64_t samples = 0; // in total
  int64_t epoch = 0;   // of the last sample, from 0
  double loss = 0;     // mean over the window
  double rate = 0;     // of the first group, as used by this update
  std::optional<float> gradNorm;
  std::optional<float> lossScale;    // of this update
  bool skipped = false;              // it changed nothing: a gradient was not finite, or
  bool outlier = false;              // its norm was unusual
  std::optional<double> fluctuation; // of the loss, where it has cut the rates
  double spikeFactor = 1;            // what cuts multiply rates by from now on
  int64_t skippedUpdates = 0;        // in total, this one included
  double stepUs = 0;                 // the window's compute, without waiting for data
};

struct TrainOptions {
  // Both count from the first sample ever seen: a resumed run goes on to the same end. At
  // least one is given; the earlier end wins.
  std::optional<int64_t> steps; // updates
  /// The last window of an epoch may be partial; it is updated at once. A short batch at
  /// its end is skipped, with a note, when the model needs full batches.
  std::optional<int64_t> epochs;

  /// Updates; 0: never. The last update is always evaluated when there is a source.
  int64_t evalEvery = 0;
  std::string checkpointFolder;
  int64_t checkpointEvery = 0; // updates; 0: only at the end
  bool resume = false;         // from the folder's newest checkpoint, if it has any
  LoadOptions load;
  /// Before the first step, after resuming: what the run changes of the plan's or the
  /// checkpoint's hyper-parameters.
  std::function<Status(Session &)> onStart;
  CheckpointOptions checkpoint;
  bool stopOnNonFinite =
      true; // a loss that is NaN or infinite ends training with StatusCode::damaged,
            // unless the loss scale skips the update

  /// Ends training after `patience` evaluations in a row that were not the best of this
  /// metric; empty: never. What it has seen is kept beside the checkpoints.
  std::string earlyStop;
  int64_t patience = 3;
  /// Keeps the checkpoint of the best evaluation in checkpointFolder/best; empty: none.
  std::string keepBest;
  /// A figure of the evaluation just reported to `onEval`; "loss" needs no one to ask.
  std::function<Result<double>(const std::string &metric)> metric;

  /// After every update; false ends training early, as if this had been the last update.
  /// Of several ranks rank 0 is asked, and its answer counts at the next evaluation or
  /// checkpoint.
  std::function<bool(const TrainProgress &)> onUpdate;
  std::function<void(const EvalReport &)> onEval;
  EvalBatchHook onEvalBatch;
};

/// The rates were cut, since the loss fluctuated.
struct RateCut {
  int64_t update = 0; // the last of the windows
  double fluctuation = 0;
  double factor = 1; // on rates from then on
};

struct TrainSummary {
  int64_t updates = 0; // in total
  int64_t steps = 0;   // updates of this run
  int64_t skipped = 0; // of them: those that changed nothing
  std::vector<RateCut> rateCuts;
  std::optional<float> lossScale; // of the last update
  int64_t samples = 0;            // of this run
  std::vector<double> losses;     // per update of this run
  double loss = 0;                // the last of them
  double stepUsMedian = 0;        // per update
  double samplesPerSecond = 0; // wall time, data included, evaluation and checkpoints not
  std::optional<EvalReport> eval;     // the last
  std::string checkpointPath;         // the last written
  std::optional<BestEvaluation> best; // of keepBest, else of earlyStop
  std::string bestPath;               // its checkpoint, if this run has written one
  bool isStoppedEarly = false;
  std::vector<std::string> notes;
};

/// `evalSource` may be null.
Result<TrainSummary> train(Session &session, BatchSource &source, BatchSource *evalSource,
                           const TrainOptions &options);

} // namespace sluice
