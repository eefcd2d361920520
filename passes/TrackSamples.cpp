// TrackSamples: which results of @eval and @infer have the samples in dimension 0, so
// that a short batch gives as many rows; which mix the samples, so that it cannot be
// filled up; and which dimensions of the results of @infer are as long as an input that
// may be filled up. On the core operations: composites are decomposed before.

#include "passes/EntryFunctions.h"
#include "passes/FilledAxes.h"
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
      if (batch && llvm::is_contained({"eval", "infer", "probe"}, entry.getSymName()))
        mark(entry, batch.getInt());
    if (auto infer = getOperation().lookupSymbol<func::FuncOp>("infer"))
      markCrops(infer);
  }

private:
  void mark(func::FuncOp entry, int64_t batch) {
    SampleAxes axes(entry, batch);
    Builder builder(entry.getContext());
    for (const auto &[i, value] : llvm::enumerate(returnOf(entry).getOperands())) {
      StringRef name = resultName(entry, i);
      if (name == "loss_sum" || name == "loss_count" || name.starts_with("grad/"))
        continue; // sums that leave padding out
      SampleAxis axis = axes.of(value);
      if (axis.countsRows(graph::tensorType(value), batch))
        entry.setResultAttr(i, "graph.batched", builder.getUnitAttr());
      else if (axis.kind != SampleAxis::None && entry.getSymName() != "eval" && batch > 1)
        refuseShort(entry, name);
    }
  }

  void markCrops(func::FuncOp entry) {
    FilledAxes axes(entry);
    for (const auto &[i, value] : llvm::enumerate(returnOf(entry).getOperands())) {
      const FilledAxes::Trace &trace = axes.of(value);
      if (trace.lost) {
        reportLost(resultName(entry, i), trace.lost);
        continue;
      }
      if (doCross(trace.axes)) {
        reportLost(resultName(entry, i), value.getDefiningOp());
        continue;
      }
      SmallVector<Attribute> crops;
      for (const FilledAxis &axis : trace.axes)
        crops.push_back(cropOf(axis, graph::tensorType(value)));
      if (!crops.empty())
        entry.setResultAttr(i, "graph.crops", ArrayAttr::get(entry.getContext(), crops));
    }
  }

  /// Axes lie one inside the other, or are the same.
  static bool doCross(ArrayRef<FilledAxis> axes) {
    for (const FilledAxis &a : axes)
      for (const FilledAxis &b : axes)
        if (a.stride == b.stride
                ? a.size != b.size
                : a.stride > b.stride && a.stride % (b.stride * b.size) != 0)
          return true;
    return false;
  }

  /// [argument, its dimension, dimension, stride, size, mul, add, div, ...].
  static Attribute cropOf(const FilledAxis &axis, RankedTensorType type) {
    int64_t dimension = 0, step = type.getNumElements();
    for (int64_t size : type.getShape()) { // the one whose elements hold the stride
      step /= size;
      if (step <= axis.stride)
        break;
      ++dimension;
    }
    SmallVector<int64_t> values{int64_t(axis.argument), axis.dimension, dimension,
                                axis.stride, axis.size};
    for (const LengthStep &s : axis.steps)
      values.append({s.mul, s.add, s.div});
    return DenseI64ArrayAttr::get(type.getContext(), values);
  }

  void reportLost(StringRef name, Operation *op) {
    std::string node;
    if (auto location = dyn_cast<NameLoc>(op->getLoc()))
      node = " (node '" + location.getName().str() + "')";
    report(getOperation(),
           "padding: the output '" + name.str() +
               "' keeps what inputs are filled up with: positions are not followed "
               "through '" +
               op->getName().getStringRef().str() + "'" + node);
  }

  /// Rows of padding would be seen: only full batches have a meaning.
  void refuseShort(func::FuncOp entry, StringRef name) {
    if (entry->hasAttr("graph.mixes"))
      return;
    entry->setAttr("graph.mixes", StringAttr::get(entry.getContext(), name));
    report(getOperation(), ("padding: samples meet in the output '" + name +
                            "', or lie along another dimension than the first, so " +
                            entry.getSymName() + " needs full batches")
                               .str());
  }
};

} // namespace

std::unique_ptr<Pass> createTrackSamples() { return std::make_unique<TrackSamples>(); }
} // namespace sluice
