// Turns the gradient results of the training entry into state. Sums stay unnormalised
// until all micro-batches are in, and are divided once by the global count, so that
// uneven micro-batches weigh right and ranks can be added in a fixed order.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/SavedMark.h"
#include "passes/Compensation.h"
#include "passes/DelayedScale.h"
#include "passes/EntryFunctions.h"
#include "passes/HyperChanges.h"
#include "passes/LossScale.h"
#include "passes/OptimizerUpdate.h"
#include "passes/Passes.h"
#include "passes/PendingGradients.h"
#include "passes/RankReduction.h"
#include "passes/RankShards.h"
#include "passes/RankSums.h"
#include "passes/SpikeRule.h"
#include "passes/StateSymbols.h"
#include "passes/UpdateBuilder.h"

#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDUPDATE
#include "passes/Passes.h.inc"

using graph::GraphBuilder;

namespace {

class BuildUpdate : public impl::BuildUpdateBase<BuildUpdate> {
public:
  explicit BuildUpdate(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!llvm::is_contained(spec.entries, "step"))
      return;
    bool accumulates = spec.addsGradients();
    auto entry =
        getOperation().lookupSymbol<func::FuncOp>(accumulates ? "micro" : "step");
    if (!entry || !resultNamed(entry, "loss_count")) {
      getOperation().emitError("no entry has gradients; run build-backward first");
      return signalPassFailure();
    }
    StateSymbols state(getOperation());
    const CompensationSpec &compensation = spec.update.compensation;
    if (compensation.isOn() && failed(checkCompensation(getOperation(), spec, state)))
      return signalPassFailure();
    if (compensation.kind == "momentum")
      predictWeights(entry, state);
    RankStatistics ofRanks(state, spec.ranks, spec.accumulate);
    statistics = spec.ranks > 1 ? &ofRanks : nullptr;
    if (statistics && failed(statistics->takeFrom(entry)))
      return signalPassFailure();
    if (statistics)
      reportShared();
    if (spec.lossScale.isOn())
      report(getOperation(), "loss_scale: " + lossScaleText(spec.lossScale));
    if (accumulates)
      accumulateThenUpdate(entry, state);
    else
      updateIn(entry, state);
    reportShards();
    if (spec.penalty.isOn())
      describePenalty(getOperation(), spec.penalty, state);
    noteGradientHealth(getOperation(), spec, state);
    if (failed(noteHyperChanges(getOperation(), spec)))
      signalPassFailure();
  }

private:
  std::vector<Gradient> gradientsOf(func::FuncOp entry, StateSymbols &state) {
    std::vector<Gradient> gradients;
    for (const NamedValue &result : results(entry))
      if (StringRef name = result.name; name.consume_front("grad/")) {
        gradients.push_back({state.lookup(("param/" + name).str()), result.value});
        gradients.back().shards = chooseShards(gradients.back().parameter, entry, state);
      }
    return gradients;
  }

  RankShards chooseShards(graph::ParameterOp parameter, func::FuncOp entry,
                          StateSymbols &state) {
    OpBuilder builder(returnOf(entry));
    EntryReads reads(entry, state);
    std::string reason;
    OptimizerUpdate update(builder, state, reads, parameter,
                           spec.precision.optimizerState);
    RankShards shards = update.chooseShards(std::max(spec.ranks, spec.asRanks), reason);
    if (spec.zero == 0 || spec.ranks == 1)
      return shards;
    shards = shards.asShared();
    ++(shards.isShared() ? sharedTensors : wholeTensors);
    if (!shards.isShared()) {
      ++wholeReasons[reason];
      decide(getOperation(), modelName(parameter.getSymName()),
             "ranks: every rank has all of its state: " + reason);
    }
    return shards;
  }

  void reportShards() {
    if (spec.zero == 0)
      return;
    std::string text = "zero: there is one rank, so nothing is shared out";
    if (spec.ranks > 1)
      text = "zero: the updates of " + std::to_string(sharedTensors) +
             " parameters are shared out to " + std::to_string(spec.ranks) + " ranks, " +
             std::to_string(wholeTensors) + " are updated by every rank" + whyWhole();
    if (spec.ranks > 1 && spec.zero == 2 && spec.accumulate > 1)
      text += "; accumulators of gradients stay whole, since each rank's sum comes "
              "before that over ranks";
    report(getOperation(), text);
  }

  std::string whyWhole() const {
    std::string text;
    for (const auto &[reason, count] : wholeReasons)
      text += (text.empty() ? " (" : ", ") + std::to_string(count) + ": " + reason;
    return text.empty() ? text : text + ")";
  }

  void updateIn(func::FuncOp entry, StateSymbols &state) {
    std::vector<NamedValue> named{{"loss_sum", resultNamed(entry, "loss_sum")},
                                  {"loss_count", resultNamed(entry, "loss_count")}};
    std::vector<Gradient> gradients = gradientsOf(entry, state);
    for (Gradient &gradient : gradients)
      gradient.count = named[1].value;
    OpBuilder builder(returnOf(entry));
    if (statistics || spec.update.delay() > 0)
      buildIdleUpdate(gradients, state);
    if (statistics)
      statistics->apply(entry, /*current=*/true, builder);
    takeOldest(entry, gradients, state, builder);
    if (statistics)
      sumAllRanks(gradients, builder);
    UpdateBuilder update(entry, spec, state);
    for (NamedValue &result : update.build(gradients))
      named.push_back(std::move(result));
    if (spec.ranks > 1)
      DelayedScale::closeWindows(entry, spec.ranks, state);
    setResults(entry, named);
  }

  /// Of deferred groups: this step's sums wait, and those of steps before take their
  /// place.
  void takeOldest(func::FuncOp entry, std::vector<Gradient> &gradients,
                  StateSymbols &state, OpBuilder &builder) {
    EntryReads reads(entry, state);
    PendingGradients pending(state, reads, builder);
    std::map<int64_t, Value> counts; // by delay
    for (Gradient &gradient : gradients) {
      int64_t delay = delayOf(gradient.parameter);
      if (delay == 0)
        continue;
      gradient.sum = pending.exchangeSum(gradient.parameter, gradient.sum);
      Value &count = counts[delay];
      if (!count)
        count = pending.exchangeCount(gradient.count, delay);
      gradient.count = count;
      if (spec.update.compensation.kind == "dc_asgd")
        gradient.old = pending.oldWeights(gradient.parameter, spec.update.compensation);
    }
  }

  /// Replaces sums of a rank, and their counts, by those over all ranks.
  void sumAllRanks(std::vector<Gradient> &gradients, OpBuilder &builder) {
    auto sum = [&](Value local, const Twine &name) {
      GraphBuilder b(local.getLoc(), builder);
      // From +0, as accumulated sums.
      return b.shift(sumOverRanks(local, name.str(), builder), 0);
    };
    llvm::MapVector<Value, Value> counts;
    for (Gradient &gradient : gradients) {
      std::string name = ("grad/" + modelName(gradient.parameter.getSymName())).str();
      counts.insert({gradient.count, Value()});
      if (!gradient.shards.isShared()) {
        gradient.sum = sum(gradient.sum, name);
        continue;
      }
      GraphBuilder b(gradient.sum.getLoc(), builder);
      gradient.sum = b.shift(gradient.shards.sumOwnRows(gradient.sum, name, builder), 0);
    }
    for (auto [index, count] : llvm::enumerate(counts))
      count.second = sum(count.first, index == 0 ? "count" : "count/" + Twine(index));
    for (Gradient &gradient : gradients)
      gradient.count = counts.lookup(gradient.count);
  }

  /// @update of a rank that has no micro-batch when others have one: it adds nothing to
  /// their sums. Of deferred groups it applies what waits.
  void buildIdleUpdate(std::vector<Gradient> gradients, StateSymbols &state) {
    func::FuncOp entry = createEntry(getOperation(), "update");
    OpBuilder builder(returnOf(entry));
    if (statistics)
      statistics->apply(entry, /*current=*/false, builder);
    else // what does not wait was applied by @step
      llvm::erase_if(gradients,
                     [](Gradient &gradient) { return delayOf(gradient.parameter) == 0; });
    GraphBuilder b(entry.getLoc(), builder);
    Value noSamples = b.splatLike(gradients.front().count, 0);
    for (auto [index, gradient] : llvm::enumerate(gradients)) {
      gradient.count = noSamples;
      // Broadcast where they are sent, each on its own: whole constants would be state,
      // on every rank, and shared zeros would be overwritten by the first sum.
      RankedTensorType type = graph::tensorType(gradient.sum);
      if (gradient.shards.isShared())
        type = gradient.shards.wholeType(type.getElementType());
      if (delayOf(gradient.parameter) > 0) { // written, as accumulators are emptied
        gradient.sum = b.splat(graph::tensorType(gradient.sum), 0);
        continue;
      }
      Value zero = b.splat(RankedTensorType::get({}, type.getElementType()), 0);
      gradient.sum = b.broadcast(zero, type.getShape());
      gradient.sum.getDefiningOp()->setAttr(graph::siteAttr,
                                            builder.getI64IntegerAttr(index));
    }
    takeOldest(entry, gradients, state, builder);
    if (statistics)
      sumAllRanks(gradients, builder);
    auto named = UpdateBuilder(entry, spec, state).build(gradients);
    if (spec.ranks > 1)
      DelayedScale::closeWindows(entry, spec.ranks, state);
    setResults(entry, named);
  }

  /// @micro adds its sums to the accumulators; @update uses and empties them, however
  /// many micro-batches came. In the order of several ranks, @close_rank runs between.
  void accumulateThenUpdate(func::FuncOp micro, StateSymbols &state) {
    OpBuilder builder(returnOf(micro));
    Value sum = resultNamed(micro, "loss_sum"), count = resultNamed(micro, "loss_count");
    std::vector<Gradient> gradients = gradientsOf(micro, state);
    EntryReads reads(micro, state);
    auto add = [&](graph::ParameterOp accumulator, Value part) {
      GraphBuilder b(accumulator.getLoc(), builder);
      Value total = b.add(reads.read(accumulator), part);
      b.create<graph::WriteOp>(accumulator.getSymName(), total);
    };
    llvm::MapVector<graph::ParameterOp, bool> counters;
    for (Gradient &gradient : gradients) {
      gradient.accumulator = accumulatorOf(gradient, state);
      add(gradient.accumulator, gradient.sum);
      gradient.counter = counterOf(gradient, graph::tensorType(count), state);
      counters.insert({gradient.counter, true});
    }
    for (auto &counter : counters)
      add(counter.first, count);
    setResults(micro, {{"loss_sum", sum}, {"loss_count", count}});
    RankSums sums(state, spec.asRanks);
    if (spec.asRanks > 1) {
      std::vector<graph::ParameterOp> all;
      for (const Gradient &gradient : gradients)
        all.push_back(gradient.accumulator);
      for (auto &counter : counters)
        all.push_back(counter.first);
      sums.buildCloseEntry(getOperation(), all);
      reportRanks(sums.rounds());
    }
    std::vector<graph::ParameterOp> buffers;
    if (statistics)
      statistics->record(micro, builder);
    else if (spec.lossScale.isOn() || spec.spikes.judgesNorms())
      buffers = saveBuffers(micro, state, builder);
    int64_t every = spec.update.every();
    for (int64_t phase = 0; phase < every; ++phase) {
      std::vector<Gradient> ofPhase;
      llvm::copy_if(gradients, std::back_inserter(ofPhase), [&](Gradient &gradient) {
        int64_t own = phaseOf(gradient.parameter);
        return own < 0 || own == phase;
      });
      std::string name = every > 1 ? "update." + std::to_string(phase) : "update";
      buildUpdateEntry(name, std::move(ofPhase), buffers, sums, state);
    }
  }

  void reportRanks(int64_t rounds) {
    report(getOperation(), "accumulate: gradients are summed in the order of " +
                               std::to_string(spec.asRanks) + " ranks of " +
                               std::to_string(spec.accumulate / spec.asRanks) +
                               " micro-batches each, with " + std::to_string(rounds) +
                               " gradient buffers more per parameter");
  }

  /// Sums of groups that interleave outlive the update, and are part of checkpoints.
  graph::ParameterOp accumulatorOf(Gradient &gradient, StateSymbols &state) {
    graph::ParameterOp parameter = gradient.parameter;
    StringRef name = modelName(parameter.getSymName());
    bool waits = phaseOf(parameter) >= 0;
    return state.declare(waits ? ("pending/" + name + "/sum").str()
                               : ("grad/" + name).str(),
                         graph::tensorType(gradient.sum),
                         waits ? "pending" : "accumulator", *parameter.getGroup());
  }

  graph::ParameterOp counterOf(Gradient &gradient, RankedTensorType type,
                               StateSymbols &state) {
    int64_t phase = phaseOf(gradient.parameter);
    if (phase >= 0)
      return state.declare("window/count/" + std::to_string(phase), type, "pending");
    StringRef name = state.lookup("param/count") ? "window/count" : "grad/count";
    return state.declare(name, type, "accumulator");
  }

  void buildUpdateEntry(StringRef name, std::vector<Gradient> gradients,
                        ArrayRef<graph::ParameterOp> buffers, RankSums &sums,
                        StateSymbols &state) {
    func::FuncOp entry = createEntry(getOperation(), name);
    OpBuilder builder(returnOf(entry));
    EntryReads reads(entry, state);
    llvm::MapVector<graph::ParameterOp, Value> counts;
    for (Gradient &gradient : gradients) {
      gradient.sum = sums.total(gradient.accumulator, reads, builder);
      Value &count = counts[gradient.counter];
      if (!count)
        count = sums.total(gradient.counter, reads, builder);
      gradient.count = count;
    }
    if (statistics)
      statistics->apply(entry, /*current=*/false, builder);
    takeOldest(entry, gradients, state, builder);
    if (statistics)
      sumAllRanks(gradients, builder);
    auto named = UpdateBuilder(entry, spec, state).build(gradients, buffers);
    for (const Gradient &gradient : gradients)
      sums.clear(gradient.accumulator, builder);
    for (auto &counter : counts)
      sums.clear(counter.first, builder);
    DelayedScale::closeWindows(entry, spec.ranks, state);
    setResults(entry, named);
  }

  void reportShared() {
    report(getOperation(),
           "ranks: " + std::to_string(spec.ranks) + " ranks of " +
               std::to_string(spec.accumulate) +
               " micro-batches each share an update; gradients are summed as by one rank "
               "with 'accumulate: {count: " +
               std::to_string(spec.ranks * spec.accumulate) +
               ", as_ranks: " + std::to_string(spec.ranks) + "}'");
  }

  const TrainingSpec &spec;
  RankStatistics *statistics = nullptr; // of several ranks
  int64_t sharedTensors = 0, wholeTensors = 0;
  std::map<std::string, int64_t> wholeReasons; // why every rank updates it
};

} // namespace

std::unique_ptr<Pass> createBuildUpdate(const TrainingSpec &spec) {
  return std::make_unique<BuildUpdate>(spec);
}

} // namespace sluice
