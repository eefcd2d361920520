#pragma once
// How many ranks of a group share this machine, and so its processors.

#include "runtime/comm/Communicator.h"

namespace sluice {

/// All ranks call it.
Result<int> ranksOnThisHost(Communicator &comm);

} // namespace sluice
