#include "passes/ReplayShare.h"

#include "passes/StateSymbols.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace sluice {

LogicalResult describeReplay(ModuleOp module, const ReplaySpec &replay, int64_t batch) {
  if (!replay.isOn)
    return success();
  // DER++ has two draws, of one sample at least.
  const int64_t least = replay.hasLogits() ? 2 : 1;
  if (batch <= least)
    return emitError(UnknownLoc::get(module.getContext()))
           << "'continual.replay' needs micro-batches of " << least + 1
           << " samples at least, they have " << batch;
  auto samples = std::clamp<int64_t>(
      std::llround(replay.ratio * static_cast<double>(batch)), least, batch - 1);
  Builder b(module.getContext());
  NamedAttrList entries;
  entries.set("samples", b.getI64IntegerAttr(samples));
  entries.set("capacity_bytes", b.getI64IntegerAttr(replay.capacityBytes));
  entries.set("policy", b.getStringAttr(replay.policy));
  entries.set("alpha", b.getF64FloatAttr(replay.alpha));
  entries.set("importance", b.getF64FloatAttr(replay.importance));
  entries.set("min_per_class", b.getI64IntegerAttr(replay.minPerClass));
  entries.set("weighted", b.getBoolAttr(replay.isWeighted()));
  entries.set("logits_weight", b.getF64FloatAttr(replay.logitsWeight.value_or(-1)));
  entries.set("labels_weight", b.getF64FloatAttr(replay.labelsWeight.value_or(1)));
  module->setAttr(replayAttr, entries.getDictionary(module.getContext()));
  report(module, "replay: " + std::to_string(samples) + " of " + std::to_string(batch) +
                     " samples of a micro-batch are of tasks before (" + replay.policy +
                     (replay.hasLogits() ? ", DER++" : "") + "); they are kept in " +
                     std::to_string(replay.capacityBytes) +
                     " bytes of host memory, beside the plan's reservations");
  return success();
}

} // namespace sluice
