/* NCCL's functions that write down how they are called, one line each, and compute
 * nothing. Lines have no addresses of their own, so buffers are named by their distance
 * from the first one seen. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
  char bytes[128];
} id_type;

static char text[1 << 16];
static size_t used;
static const char *base;
static const char *failing = "";
static int failure, asynchronous;

EXPORT const char *fake_log(void) { return text; }
/* From now on: `call` gives `result`, and the communicator has an asynchronous error. */
EXPORT void fake_reset(const char *call, int result, int asynchronous_error) {
  used = 0;
  text[0] = 0;
  base = NULL;
  failing = call;
  failure = result;
  asynchronous = asynchronous_error;
}

static int called(const char *name, const char *line) {
  used += (size_t)snprintf(text + used, sizeof text - used, "%s%s\n", name, line);
  return strcmp(name, failing) == 0 ? failure : 0;
}

static long place(const void *data) {
  if (!base)
    base = data;
  return (long)((const char *)data - base);
}

EXPORT int ncclGetVersion(int *version) {
  *version = 22100;
  return 0;
}
EXPORT int ncclGetUniqueId(id_type *id) {
  memset(id, 42, sizeof *id);
  return called("uniqueId", "");
}
EXPORT int ncclCommInitRank(void **comm, int ranks, id_type id, int rank) {
  char line[100];
  snprintf(line, sizeof line, " %d of %d, id %d", rank, ranks, id.bytes[127]);
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
EXPORT int ncclGroupStart(void) { return called("group", ""); }
EXPORT int ncclGroupEnd(void) { return called("end", ""); }

static int data_call(const char *name, const void *from, const void *to, size_t count,
                     int type, int op, int root, const void *comm, const void *stream) {
  char line[200];
  snprintf(line, sizeof line, " %ld+%zu type %d op %d root %d%s%s", place(from), count,
           type, op, root, from == to ? "" : " not in place",
           comm == text && stream ? "" : " ?");
  return called(name, line);
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                         void *comm, void *stream) {
  return data_call("allReduce", from, to, count, type, op, -1, comm, stream);
}
EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int op,
                      int root, void *comm, void *stream) {
  return data_call("reduce", from, to, count, type, op, root, comm, stream);
}
EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                         void *comm, void *stream) {
  return data_call("broadcast", from, to, count, type, -1, root, comm, stream);
}
EXPORT int ncclSend(const void *from, size_t count, int type, int peer, void *comm,
                    void *stream) {
  return data_call("send", from, from, count, type, -1, peer, comm, stream);
}
EXPORT int ncclRecv(void *to, size_t count, int type, int peer, void *comm,
                    void *stream) {
  return data_call("recv", to, to, count, type, -1, peer, comm, stream);
}
