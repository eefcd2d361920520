// The C API: the rungs of a plan's memory ladder.

#include "runtime/CApiHandles.h"

using namespace sluice;

size_t sluice_plan_variant_count(const sluice_plan *plan) {
  return plan ? plan->plan->rungs() : 0;
}

sluice_status sluice_plan_variant(const sluice_plan *plan, size_t variant,
                                  sluice_variant_info *info) {
  return report(guarded([&]() -> Status {
    if (!plan || !info)
      return Status::usage("argument 'plan' or 'info' is null");
    if (variant >= plan->plan->rungs())
      return Status::usage("there is no variant " + std::to_string(variant) +
                           "; the plan has " + std::to_string(plan->plan->rungs()));
    auto rung = static_cast<uint32_t>(variant);
    const PlanVariant &first = plan->plan->variant(0, rung);
    PlanMemory memory = plan->plan->memory(rung);
    *info = {first.memoryFraction, first.budgetBytes, memory.stateBytes,
             memory.stepBytes};
    return Status::success();
  }));
}

sluice_status sluice_session_use_variant(sluice_session *session, size_t variant) {
  return with(session, [&](Session &self) {
    constexpr size_t most = UINT32_MAX;
    return self.useVariant(static_cast<uint32_t>(variant < most ? variant : most));
  });
}

size_t sluice_session_variant(const sluice_session *session) {
  return session ? session->session->variant() : 0;
}
