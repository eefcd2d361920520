// NCCL's functions that write down how they are called, one line each, and compute
// nothing. Buffers are named by their distance from the first one seen.

#include "runtime/comm/NcclLibrary.h"

#include <cstdio>
#include <cstring>

using sluice::NcclId;
using sluice::NcclType;

#define EXPORT extern "C" __attribute__((visibility("default")))

static char text[1 << 16];
static size_t used;
static const char *base;
static const char *failing = "";
static int failure, asynchronous;

EXPORT const char *fake_log() { return text; }
// From now on `call` gives `result`, and the communicator has an asynchronous error.
EXPORT void fake_reset(const char *call, int result, int asynchronous_error) {
  used = 0;
  text[0] = 0;
  base = nullptr;
  failing = call;
  failure = result;
  asynchronous = asynchronous_error;
}

static int called(const char *name, const char *line) {
  used += static_cast<size_t>(
      std::snprintf(text + used, sizeof text - used, "%s%s\n", name, line));
  return std::strcmp(name, failing) == 0 ? failure : 0;
}

static long place(const void *data) {
  if (!base)
    base = static_cast<const char *>(data);
  return static_cast<const char *>(data) - base;
}

EXPORT int ncclGetVersion(int *version) {
  *version = 22100;
  return 0;
}
EXPORT int ncclGetUniqueId(NcclId *id) {
  std::memset(id, 42, sizeof *id);
  return called("uniqueId", "");
}
EXPORT int ncclCommInitRank(void **comm, int ranks, NcclId id, int rank) {
  char line[100];
  std::snprintf(line, sizeof line, " %d of %d, id %d", rank, ranks, id.bytes[127]);
  *comm = text;
  return called("init", line);
}
EXPORT int ncclCommDestroy(void *comm) {
  return called("destroy", comm == text ? "" : "?");
}
EXPORT int ncclCommAbort(void *comm) { return called("abort", comm == text ? "" : "?"); }
EXPORT int ncclCommGetAsyncError(void *comm, int *error) {
  *error = comm == text ? asynchronous : 5;
  return 0;
}
EXPORT const char *ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "other";
}
EXPORT int ncclGroupStart() { return called("group", ""); }
EXPORT int ncclGroupEnd() { return called("end", ""); }

static int dataCall(const char *name, const void *from, const void *to, size_t count,
                    NcclType type, int op, int root, const void *comm,
                    const void *stream) {
  char line[200];
  std::snprintf(line, sizeof line, " %ld+%zu type %d op %d root %d%s%s", place(from),
                count, type, op, root, from == to ? "" : " not in place",
                comm == text && stream ? "" : " ?");
  return called(name, line);
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t count, NcclType type, int op,
                         void *comm, void *stream) {
  return dataCall("allReduce", from, to, count, type, op, -1, comm, stream);
}
EXPORT int ncclReduce(const void *from, void *to, size_t count, NcclType type, int op,
                      int root, void *comm, void *stream) {
  return dataCall("reduce", from, to, count, type, op, root, comm, stream);
}
EXPORT int ncclBroadcast(const void *from, void *to, size_t count, NcclType type,
                         int root, void *comm, void *stream) {
  return dataCall("broadcast", from, to, count, type, -1, root, comm, stream);
}
EXPORT int ncclSend(const void *from, size_t count, NcclType type, int peer, void *comm,
                    void *stream) {
  return dataCall("send", from, from, count, type, -1, peer, comm, stream);
}
EXPORT int ncclRecv(void *to, size_t count, NcclType type, int peer, void *comm,
                    void *stream) {
  return dataCall("recv", to, to, count, type, -1, peer, comm, stream);
}
