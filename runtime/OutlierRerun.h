#pragma once
// What a training loop does with a window whose update was judged an outlier: it runs
// once more, to tell data from hardware.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"

#include <functional>
#include <string>
#include <vector>

namespace sluice {

/// Runs a window of micro-batches from the session's next sample on.
using WindowRun = std::function<Status(StepResult &result, double &computeUs)>;

/// Runs `window`; a second time where the plan asks for it. The same bits again: the data
/// is unusual, and the update stays skipped. Other bits: the machine has erred, and what
/// the second run makes of it stands. Adds a note of at most `maxRerunNotes`.
Status runJudged(Session &session, BatchSource &source, const WindowRun &window,
                 StepResult &result, double &computeUs, std::vector<std::string> &notes);

constexpr size_t maxRerunNotes = 20;

} // namespace sluice
