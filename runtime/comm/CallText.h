#pragma once
// How calls of a communicator are named in errors, and whether two belong together.

#include "runtime/comm/Communicator.h"

#include <vector>

namespace sluice {

/// "all_reduce", ...
std::string_view commOpName(CommOp op);

/// "all_reduce 'grad/w' (program 'step', update 41)".
std::string callText(const CommCall &call);

/// "rank 2 of 4", "ranks 1 and 3 of 4".
std::string ranksText(const std::vector<int> &ranks, int size);

/// Ranks that kept the others waiting until the timeout.
Status missingRanks(const std::vector<int> &ranks, int size, const CommCall &call,
                    std::chrono::milliseconds timeout);

/// Ranks that came but then sent nothing for that long.
Status stalledRanks(const std::vector<int> &ranks, int size, const CommCall &call,
                    std::chrono::milliseconds timeout);

/// Two ranks of a group may do these at the same time: the same collective, or a send and
/// its receive.
bool callsMatch(const CommCall &a, const CommCall &b);

/// They may not.
Status callsDiffer(int rankA, const CommCall &a, int rankB, const CommCall &b, int size);

} // namespace sluice
