#pragma once
// Whether all ranks see the folder that they are going to write a checkpoint into
// together.

#include "runtime/comm/Communicator.h"

namespace sluice {

/// Rank 0 leaves a file in the folder, which all look for. All ranks call it; an error is
/// one on all of them.
Status checkSharedFolder(Communicator &comm, const std::string &folder);

} // namespace sluice
