// A choice of what lies in the host's memory, as attributes of a module.

#include "passes/OffloadStep.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {

/// Offsets of the state of either memory, in the order of the module.
static void layOutAgain(ModuleOp module) {
  constexpr int64_t lineBytes = 64;
  int64_t redZone = plan::redZoneOf(module);
  int64_t ends[2] = {redZone, redZone}; // device, host
  for (auto state : module.getOps<plan::StateOp>()) {
    int64_t &end = ends[state.isOnHost()];
    state.setOffset(end);
    end = llvm::alignTo(end + int64_t(state.getSize()), lineBytes) + redZone;
  }
}

void applyOffload(ModuleOp module, const OffloadNames &names) {
  Builder builder(module);
  bool moved = false;
  for (auto state : module.getOps<plan::StateOp>())
    if (auto found = names.states.find(state.getSymName().str());
        found != names.states.end()) {
      moved = true;
      state.setSpace("host");
      if (found->second > 1)
        state->setAttr(atOnceAttr, builder.getUnitAttr());
    }
  if (moved)
    layOutAgain(module);
  for (auto program : module.getOps<plan::ProgramOp>()) {
    auto found = names.buffers.find(program.getEntry().str());
    int64_t ordinal = 0;
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
      int64_t index = ordinal++;
      if (found == names.buffers.end() || !found->second.count(index))
        continue;
      buffer.setOffload(true);
      if (found->second.at(index) > 1)
        buffer->setAttr(atOnceAttr, builder.getUnitAttr());
    }
  }
}

} // namespace sluice
