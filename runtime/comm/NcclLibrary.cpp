#include "runtime/comm/NcclLibrary.h"

#include "runtime/comm/DynamicLibrary.h"

namespace sluice {

static Status notAvailable(const std::string &why) {
  return Status::cannotRunHere("NCCL is not available: " + why +
                               "; install NCCL 2.7 or later (libnccl2), or use '--comm "
                               "mpi' or '--comm local'");
}

Result<NcclLibrary> loadNccl(const std::string &file) {
  Result<void *> library = openLibrary({file.empty() ? "libnccl.so.2" : file}, false);
  if (!library)
    return notAvailable(library.status().message);
  NcclLibrary nccl = {};
  std::string lacking;
  auto find = [&]<class Function>(Function &function, const char *name) {
    function = reinterpret_cast<Function>(symbolOf(*library, name));
    if (!function && lacking.empty())
      lacking = name;
  };
  find(nccl.getVersion, "ncclGetVersion");
  find(nccl.getUniqueId, "ncclGetUniqueId");
  find(nccl.commInitRank, "ncclCommInitRank");
  find(nccl.commDestroy, "ncclCommDestroy");
  find(nccl.commAbort, "ncclCommAbort");
  find(nccl.commGetAsyncError, "ncclCommGetAsyncError");
  find(nccl.getErrorString, "ncclGetErrorString");
  find(nccl.groupStart, "ncclGroupStart");
  find(nccl.groupEnd, "ncclGroupEnd");
  find(nccl.allReduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.send, "ncclSend");
  find(nccl.recv, "ncclRecv");
  if (!lacking.empty())
    return notAvailable("the library has no '" + lacking + "'");
  return nccl;
}

} // namespace sluice
