#pragma once
// The functions of NCCL that are used, as nccl.h 2.7 and later declare them; found when
// NCCL is asked for.

#include "runtime/Status.h"

#include <cstddef>

namespace sluice {

struct NcclId {
  char bytes[128]; ///< NCCL_UNIQUE_ID_BYTES
};

/// ncclResult_t: 0 is success, 7 (since 2.14) still under way.
using NcclResult = int;
constexpr NcclResult ncclSuccess = 0, ncclInProgress = 7;

/// ncclDataType_t and ncclRedOp_t, as far as they are used.
enum NcclType : int { ncclUint8 = 1, ncclInt64 = 4, ncclFloat32 = 7, ncclFloat64 = 8 };
constexpr int ncclSum = 0;

struct NcclLibrary {
  using Comm = void *;
  using Stream = void *;
  NcclResult (*getVersion)(int *version);
  NcclResult (*getUniqueId)(NcclId *id);
  NcclResult (*commInitRank)(Comm *comm, int ranks, NcclId id, int rank);
  NcclResult (*commDestroy)(Comm comm);
  NcclResult (*commAbort)(Comm comm);
  NcclResult (*commGetAsyncError)(Comm comm, NcclResult *error);
  const char *(*getErrorString)(NcclResult result);
  NcclResult (*groupStart)();
  NcclResult (*groupEnd)();
  NcclResult (*allReduce)(const void *from, void *to, size_t count, NcclType type, int op,
                          Comm comm, Stream stream);
  NcclResult (*reduce)(const void *from, void *to, size_t count, NcclType type, int op,
                       int root, Comm comm, Stream stream);
  NcclResult (*broadcast)(const void *from, void *to, size_t count, NcclType type,
                          int root, Comm comm, Stream stream);
  NcclResult (*send)(const void *from, size_t count, NcclType type, int peer, Comm comm,
                     Stream stream);
  NcclResult (*recv)(void *to, size_t count, NcclType type, int peer, Comm comm,
                     Stream stream);
};

/// From this file, or libnccl.so.2 where the system looks for libraries.
Result<NcclLibrary> loadNccl(const std::string &file);

} // namespace sluice
