#include "passes/PendingGradients.h"

#include "ir/TrainingSpec.h"
#include "passes/NarrowState.h"
#include "passes/UpdateGroups.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

int64_t delayOf(graph::ParameterOp parameter) {
  auto delay = parameter->getAttrOfType<IntegerAttr>(updateDelayAttr);
  return delay ? delay.getInt() : 0;
}

int64_t phaseOf(graph::ParameterOp parameter) {
  auto phase = parameter->getAttrOfType<IntegerAttr>(updatePhaseAttr);
  return phase ? phase.getInt() : -1;
}

Value PendingGradients::exchange(const std::string &name, Value fresh, int64_t delay,
                                 StringRef group) {
  SmallVector<graph::ParameterOp> slots;
  for (int64_t i = 0; i < delay; ++i)
    slots.push_back(state.declare(name + "/" + std::to_string(i),
                                  graph::tensorType(fresh), "pending", group));
  Value oldest = reads.read(slots[0]);
  for (int64_t i = 0; i < delay; ++i)
    builder.create<graph::WriteOp>(slots[i].getLoc(), slots[i].getSymName(),
                                   i + 1 < delay ? reads.read(slots[i + 1]) : fresh);
  return oldest;
}

Value PendingGradients::exchangeSum(graph::ParameterOp parameter, Value fresh) {
  return exchange(("pending/" + modelName(parameter.getSymName())).str(), fresh,
                  delayOf(parameter), *parameter.getGroup());
}

Value PendingGradients::exchangeCount(Value fresh, int64_t delay) {
  return exchange("window/deferred/" + std::to_string(delay), fresh, delay, "");
}

Value PendingGradients::oldWeights(graph::ParameterOp parameter,
                                   const CompensationSpec &how) {
  Value now = readExact(parameter, state, reads, builder);
  if (how.versions == "reconstructed")
    return reconstruct(parameter, now);
  return exchange(("old/" + modelName(parameter.getSymName())).str(), now,
                  delayOf(parameter), *parameter.getGroup());
}

/// Of SGD with momentum the last update was w' = w - lr * velocity, so w = w' + lr *
/// velocity, up to its rounding. The rate is that of the step before; 0 where it changed
/// nothing.
Value PendingGradients::reconstruct(graph::ParameterOp parameter, Value now) {
  StringRef group = *parameter.getGroup();
  GraphBuilder b(parameter.getLoc(), builder);
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  graph::ParameterOp kept =
      state.declare(("window/lr/" + group).str(), scalar, "pending", group);
  if (rates.try_emplace(group, true).second) {
    Value lr =
        reads.control(("control/" + group + "/lr").str(), builder.getF32Type(), group);
    graph::ParameterOp active =
        state.declare(("control/" + group + "/active").str(), scalar, "control", group);
    active.setFillAttr(builder.getF64FloatAttr(1));
    Value moves = b.compare(reads.read(active), "gt", b.splatLike(lr, 0));
    b.create<graph::WriteOp>(kept.getSymName(), b.select(moves, lr, b.splatLike(lr, 0)));
  }
  graph::ParameterOp velocity =
      state.declare(("opt/" + modelName(parameter.getSymName()) + "/velocity").str(),
                    graph::tensorType(now), "moment", group);
  Value rate = b.broadcastLike(reads.read(kept), now);
  return b.add(now, b.mul(rate, reads.read(velocity)));
}

} // namespace sluice
