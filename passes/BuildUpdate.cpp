// Turns the gradient results of the training entry into state. Sums stay unnormalised
// until all micro-batches are in, and are divided once by the global count, so that
// uneven micro-batches weigh right and ranks can be added in a fixed order.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"
#include "passes/OptimizerUpdate.h"
#include "passes/Passes.h"
#include "passes/RankSums.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDUPDATE
#include "passes/Passes.h.inc"

using graph::GraphBuilder;

namespace {

/// A trainable parameter with the sum of its gradients over the update's samples.
struct Gradient {
  graph::ParameterOp parameter;
  Value sum;
};

/// Builds the optimizer part of one entry.
class UpdateBuilder {
public:
  UpdateBuilder(func::FuncOp entry, const TrainingSpec &spec, StateSymbols &state)
      : spec(spec), state(state), reads(entry, state), builder(returnOf(entry)) {}

  /// Updates all parameters; returns the norm of the mean gradient where it is clipped,
  /// else null.
  Value build(std::vector<Gradient> gradients, Value count) {
    GraphBuilder b = at("normalize");
    Value zero = b.splatLike(count, 0), one = b.splatLike(count, 1);
    // Without a single counted sample the gradients are 0, not NaN.
    Value some = b.compare(count, "gt", zero);
    Value inverse = b.select(some, b.div(one, b.select(some, count, one)), zero);
    for (Gradient &gradient : gradients)
      gradient.sum = multiply(gradient.sum, inverse, gradient.parameter);
    Value norm = spec.clip.kind == "global_norm" ? clip(gradients) : Value();
    for (const Gradient &gradient : gradients)
      update(gradient);
    return norm;
  }

private:
  GraphBuilder at(StringRef name) {
    return {NameLoc::get(builder.getStringAttr(name)), builder};
  }

  Value multiply(Value gradient, Value factor, graph::ParameterOp parameter) {
    GraphBuilder b(parameter.getLoc(), builder);
    Value converted = b.cast(factor, graph::tensorType(gradient).getElementType());
    return b.mul(gradient, b.broadcastLike(converted, gradient));
  }

  /// Scales by min(1, max / (norm + 1e-6)), as PyTorch; squares are summed per tensor,
  /// then over tensors in name order. Groups that are frozen while training count for
  /// nothing, as parameters without a gradient do.
  Value clip(std::vector<Gradient> &gradients) {
    GraphBuilder b = at("clip");
    Value total;
    for (const Gradient &gradient : gradients) {
      Value squares = b.cast(b.sumAll(b.square(gradient.sum)), b.getF32Type());
      squares =
          b.select(isActive(b, gradient.parameter), squares, b.splatLike(squares, 0));
      total = total ? b.add(total, squares) : squares;
    }
    Value norm = b.make<graph::SqrtOp>(total);
    Value ratio = b.div(control("control/clip_max", spec.clip.max), b.shift(norm, 1e-6));
    Value factor = b.make<graph::MinOp>(b.splatLike(norm, 1), ratio);
    for (Gradient &gradient : gradients)
      gradient.sum = multiply(gradient.sum, factor, gradient.parameter);
    return norm;
  }

  Value control(const std::string &symbol, double value) {
    auto declared =
        state.declare(symbol, RankedTensorType::get({}, builder.getF32Type()), "control");
    declared.setFillAttr(builder.getF64FloatAttr(value));
    return reads.read(declared);
  }

  Value isActive(GraphBuilder &b, graph::ParameterOp parameter) {
    Value active = control("control/" + parameter.getGroup()->str() + "/active", 1);
    return b.compare(active, "gt", b.splatLike(active, 0));
  }

  void update(const Gradient &gradient) {
    OptimizerUpdate(builder, state, reads, gradient.parameter).build(gradient.sum);
  }

  const TrainingSpec &spec;
  StateSymbols &state;
  EntryReads reads;
  OpBuilder builder;
};

class BuildUpdate : public impl::BuildUpdateBase<BuildUpdate> {
public:
  explicit BuildUpdate(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!llvm::is_contained(spec.entries, "step"))
      return;
    bool accumulates = spec.accumulate > 1;
    auto entry =
        getOperation().lookupSymbol<func::FuncOp>(accumulates ? "micro" : "step");
    if (!entry || !resultNamed(entry, "loss_count")) {
      getOperation().emitError("no entry has gradients; run build-backward first");
      return signalPassFailure();
    }
    StateSymbols state(getOperation());
    if (accumulates)
      accumulateThenUpdate(entry, state);
    else
      updateIn(entry, state);
  }

private:
  std::vector<Gradient> gradientsOf(func::FuncOp entry, StateSymbols &state) {
    std::vector<Gradient> gradients;
    for (const NamedValue &result : results(entry))
      if (StringRef name = result.name; name.consume_front("grad/"))
        gradients.push_back({state.lookup(("param/" + name).str()), result.value});
    return gradients;
  }

  void updateIn(func::FuncOp entry, StateSymbols &state) {
    std::vector<NamedValue> named{{"loss_sum", resultNamed(entry, "loss_sum")},
                                  {"loss_count", resultNamed(entry, "loss_count")}};
    UpdateBuilder update(entry, spec, state);
    if (Value norm = update.build(gradientsOf(entry, state), named[1].value))
      named.push_back({"grad_norm", norm});
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
    std::vector<graph::ParameterOp> accumulators;
    for (const Gradient &gradient : gradients) {
      accumulators.push_back(accumulatorOf(gradient, state));
      add(accumulators.back(), gradient.sum);
    }
    StringRef counterName = state.lookup("param/count") ? "window/count" : "grad/count";
    auto counter = state.declare(counterName, graph::tensorType(count), "accumulator");
    add(counter, count);
    setResults(micro, {{"loss_sum", sum}, {"loss_count", count}});
    RankSums sums(state, spec.asRanks);
    if (spec.asRanks > 1) {
      std::vector<graph::ParameterOp> all = accumulators;
      all.push_back(counter);
      sums.buildCloseEntry(getOperation(), all);
      reportRanks(sums.rounds());
    }
    buildUpdateEntry(gradients, accumulators, counter, sums, state);
  }

  void reportRanks(int64_t rounds) {
    report(getOperation(), "accumulate: gradients are summed in the order of " +
                               std::to_string(spec.asRanks) + " ranks of " +
                               std::to_string(spec.accumulate / spec.asRanks) +
                               " micro-batches each, with " + std::to_string(rounds) +
                               " gradient buffers more per parameter");
  }

  graph::ParameterOp accumulatorOf(const Gradient &gradient, StateSymbols &state) {
    graph::ParameterOp parameter = gradient.parameter;
    return state.declare(("grad/" + modelName(parameter.getSymName())).str(),
                         graph::tensorType(gradient.sum), "accumulator",
                         *parameter.getGroup());
  }

  void buildUpdateEntry(std::vector<Gradient> gradients,
                        ArrayRef<graph::ParameterOp> accumulators,
                        graph::ParameterOp counter, RankSums &sums, StateSymbols &state) {
    func::FuncOp entry = createEntry(getOperation(), "update");
    OpBuilder builder(returnOf(entry));
    EntryReads reads(entry, state);
    for (auto [gradient, accumulator] : llvm::zip_equal(gradients, accumulators))
      gradient.sum = sums.total(accumulator, reads, builder);
    Value count = sums.total(counter, reads, builder);
    Value norm = UpdateBuilder(entry, spec, state).build(gradients, count);
    for (graph::ParameterOp accumulator : accumulators)
      sums.clear(accumulator, builder);
    sums.clear(counter, builder);
    if (norm)
      setResults(entry, {{"grad_norm", norm}});
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createBuildUpdate(const TrainingSpec &spec) {
  return std::make_unique<BuildUpdate>(spec);
}

} // namespace sluice
