// TrackSamples: which results of @eval and @infer have the samples in dimension 0, so
// that a short batch gives as many rows; and which mix the samples, so that it cannot be
// filled up. On the core operations: composites are decomposed before.

#include "passes/EntryFunctions.h"
#include "passes/Passes.h"
#include "passes/SampleAxis.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_TRACKSAMPLES
#include "passes/Passes.h.inc"
namespace {

struct TrackSamples : impl::TrackSamplesBase<TrackSamples> {
  void runOnOperation() override {
    auto batch = getOperation()->getAttrOfType<IntegerAttr>("graph.batch");
    for (auto entry : getOperation().getOps<func::FuncOp>())
      if (batch && (entry.getSymName() == "eval" || entry.getSymName() == "infer"))
        mark(entry, batch.getInt());
  }

private:
  void mark(func::FuncOp entry, int64_t batch) {
    SampleAxes axes(entry, batch);
    Builder builder(entry.getContext());
    for (const auto &[i, value] : llvm::enumerate(returnOf(entry).getOperands())) {
      StringRef name = resultName(entry, i);
      if (name == "loss_sum" || name == "loss_count")
        continue; // sums that leave padding out
      SampleAxis axis = axes.of(value);
      if (axis.countsRows(graph::tensorType(value), batch))
        entry.setResultAttr(i, "graph.batched", builder.getUnitAttr());
      else if (axis.kind != SampleAxis::None && entry.getSymName() == "infer" &&
               batch > 1)
        refuseShort(entry, name);
    }
  }

  /// Rows of padding would be seen: only full batches have a meaning.
  void refuseShort(func::FuncOp entry, StringRef name) {
    if (entry->hasAttr("graph.mixes"))
      return;
    entry->setAttr("graph.mixes", StringAttr::get(entry.getContext(), name));
    report(getOperation(), ("padding: samples meet in the output '" + name +
                            "', or lie along another dimension than the first, so "
                            "infer needs full batches")
                               .str());
  }
};

} // namespace

std::unique_ptr<Pass> createTrackSamples() { return std::make_unique<TrackSamples>(); }
} // namespace sluice
