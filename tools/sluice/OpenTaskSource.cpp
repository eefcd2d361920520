// The data of a task, mixed with samples of those before.

#include "runtime/data/DataSource.h"
#include "runtime/replay/TaskSource.h"
#include "tools/sluice/TaskStream.h"

namespace sluice::cli {

Result<std::unique_ptr<BatchSource>> openNew(const Session &session,
                                             const std::vector<std::string> &data,
                                             bool shuffle, int64_t fresh) {
  DataOptions reading;
  reading.shuffle = shuffle;
  reading.seed = session.seed();
  reading.labelsInput = viewOf(session.plan().raw().labels_input());
  auto opened = openData(data, dataInputs(session.plan(), fresh), reading);
  if (!opened)
    return opened.status();
  return std::unique_ptr<BatchSource>(std::move(*opened));
}

Result<std::unique_ptr<BatchSource>>
openTaskSource(const Session &session, const std::vector<std::string> &data, bool shuffle,
               const ReplayBuffer *buffer, int64_t firstPosition) {
  const Plan &plan = session.plan();
  TaskSourceOptions options;
  options.batch = plan.batch();
  options.firstPosition = firstPosition;
  options.mix = mixOf(plan);
  options.buffer = buffer;
  auto opened = openNew(session, data, shuffle, options.fresh());
  if (!opened)
    return opened.status();
  auto source =
      TaskSource::make(std::move(*opened), plan.inputs(plan.trainingProgram()), options);
  if (!source)
    return source.status();
  return std::unique_ptr<BatchSource>(std::move(*source));
}

} // namespace sluice::cli
