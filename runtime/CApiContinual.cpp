// The C API of plans with a penalty: the Fisher, and the end of a task.

#include "runtime/CApiHandles.h"
#include "runtime/continual/Consolidation.h"
#include "runtime/continual/Fisher.h"

using namespace sluice;

sluice_status sluice_session_fisher(sluice_session *session, const void *const *inputs,
                                    size_t count, int64_t samples) {
  return with(session, [&](Session &self) {
    const fbs::Program *program = self.plan().program("fisher");
    if (!session->fisher) {
      auto opened = FisherEstimate::open(self);
      if (!opened)
        return opened.status();
      session->fisher = std::make_unique<FisherEstimate>(std::move(*opened));
    }
    if (count != sizeOf(program->inputs()))
      return Status::usage("program 'fisher' has " +
                           std::to_string(sizeOf(program->inputs())) + " inputs, " +
                           std::to_string(count) + " are given");
    if (!inputs && count > 0)
      return Status::usage("argument 'inputs' is null");
    Batch batch;
    batch.data.assign(inputs, inputs + count);
    batch.count = samples;
    batch.firstSample = session->fisher->samples();
    return session->fisher->add(batch);
  });
}

sluice_status sluice_session_consolidate(sluice_session *session) {
  return with(session, [&](Session &self) {
    auto report = consolidate(self, session->fisher.get());
    if (report)
      session->fisher.reset();
    return report ? Status::success() : report.status();
  });
}

sluice_status sluice_session_penalty(sluice_session *session, double *value) {
  return with(session, [&](Session &self) {
    if (!value)
      return Status::usage("argument 'value' is null");
    auto found = penaltyValue(self);
    if (found)
      *value = *found;
    return found ? Status::success() : found.status();
  });
}
