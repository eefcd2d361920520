#pragma once
// Ranks that are CUDA devices, over NCCL. Sums have NCCL's order: the same bits every
// run, but not those of the fixed tree.

#include "runtime/comm/Communicator.h"

#include <memory>

namespace sluice {

/// Where the device works, as its backend knows it.
struct DeviceStream {
  void *stream = nullptr; ///< a cudaStream_t
  /// Whether all that was put into the stream is done; null without a device.
  Status (*query)(void *stream, bool &done) = nullptr;
};

struct NcclOptions {
  CommOptions comm;
  DeviceStream stream;
  std::string library; ///< empty: libnccl.so.2
};

/// `through` carries what NCCL does not: its unique id at the start, barriers, and after
/// a timeout the question who is missing. It has the same ranks and outlives this one.
/// Parts are memory of the device, cut alike on all ranks. Refused where there is no
/// device.
Result<std::unique_ptr<Communicator>> openNccl(Communicator &through,
                                               const NcclOptions &options);

} // namespace sluice
