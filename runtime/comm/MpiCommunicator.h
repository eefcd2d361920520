#pragma once
// Ranks that are processes started by an MPI launcher (mpirun, srun).

#include "runtime/comm/Communicator.h"

#include <memory>

namespace sluice {

struct MpiOptions {
  CommOptions comm;
  /// The shim's file. Empty: beside the program or library that this code is in, in
  /// ../lib and where the build puts it, then wherever the system looks for libraries.
  std::string shim;
};

/// The end of this process in its MPI job, a group of one without a launcher; once in a
/// process. Cannot run here when there is no MPI; an error when another rank does not
/// come to the start within the timeout, or half a minute. Destroying it waits for the
/// other ranks to destroy theirs.
Result<std::unique_ptr<Communicator>> openMpi(const MpiOptions &options = {});

} // namespace sluice
