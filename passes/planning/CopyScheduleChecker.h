#pragma once
// Checks a schedule of copies. Shares no code with the one that makes it.

#include "passes/planning/CopySchedule.h"

#include <string>

namespace sluice {

/// Empty if no launch touches an offloaded tensor whose bytes are not there or still on
/// their way, no copy moves what a launch may be writing, neither queue waits for ever,
/// the bytes on the device are taken as long as anything uses them, and the time is the
/// one that the rates give.
std::string checkCopySchedule(const StreamProblem &problem,
                              const StreamSchedule &schedule);

} // namespace sluice
