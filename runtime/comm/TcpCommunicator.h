#pragma once
// Ranks that are processes on any hosts, over TCP: without MPI, and for what NCCL needs
// beside itself (its unique id, barriers, the question who is missing).

#include "runtime/comm/Communicator.h"
#include "runtime/comm/TcpMeeting.h"

#include <memory>

namespace sluice {

/// The end of this process in a group of `meeting.size`. Destroying it waits for the
/// other ranks to destroy theirs.
Result<std::unique_ptr<Communicator>> openTcp(const Meeting &meeting,
                                              const CommOptions &options = {});

} // namespace sluice
