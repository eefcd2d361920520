#include "runtime/comm/mpi_shim.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shim {
  MPI_Comm comm;
  uint32_t requests;
  MPI_Request *request;
  char error[MPI_MAX_ERROR_STRING];
} shim;

static int post_send(void *user, uint32_t request, const void *data, size_t bytes, int to,
                     int channel) {
  shim *self = user;
  if (bytes > INT_MAX)
    return MPI_ERR_COUNT;
  return MPI_Isend(data, (int)bytes, MPI_BYTE, to, channel, self->comm,
                   &self->request[request]);
}

static int post_receive(void *user, uint32_t request, void *data, size_t room, int from,
                        int channel) {
  shim *self = user;
  if (room > INT_MAX)
    return MPI_ERR_COUNT;
  return MPI_Irecv(data, (int)room, MPI_BYTE, from, channel, self->comm,
                   &self->request[request]);
}

static int test(void *user, uint32_t request, bool *done) {
  shim *self = user;
  int flag = 0;
  int code = MPI_Test(&self->request[request], &flag, MPI_STATUS_IGNORE);
  *done = flag != 0;
  return code;
}

/* A send that no one receives cannot be cancelled everywhere; its request is let go. */
static void cancel(void *user, uint32_t request) {
  shim *self = user;
  if (self->request[request] == MPI_REQUEST_NULL)
    return;
  MPI_Cancel(&self->request[request]);
  MPI_Request_free(&self->request[request]);
}

static const char *error_text(void *user, int error) {
  shim *self = user;
  int length = 0;
  if (MPI_Error_string(error, self->error, &length) != MPI_SUCCESS)
    return "an unknown MPI error";
  return self->error;
}

static int refuse(shim *self, char *reason, size_t room, const char *why) {
  snprintf(reason, room, "%s", why);
  free(self->request);
  free(self);
  return 1;
}

static int open_world(sluice_transport *transport, char *reason, size_t room) {
  shim *self = calloc(1, sizeof *self);
  if (!self) {
    snprintf(reason, room, "out of memory");
    return 1;
  }
  int begun = 0, ended = 0, provided = 0, rank = 0, size = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (ended)
    return refuse(self, reason, room, "MPI has been used and ended in this process");
  if (begun)
    MPI_Query_thread(&provided);
  else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    return refuse(self, reason, room, "MPI_Init_thread failed");
  if (provided < MPI_THREAD_SERIALIZED)
    return refuse(self, reason, room,
                  "this MPI serves its first thread only (MPI_THREAD_SERIALIZED is "
                  "needed)");
  if (MPI_Comm_dup(MPI_COMM_WORLD, &self->comm) != MPI_SUCCESS)
    return refuse(self, reason, room, "MPI_Comm_dup failed");
  MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(self->comm, &rank);
  MPI_Comm_size(self->comm, &size);
  self->requests = SLUICE_TRANSPORT_REQUESTS(size);
  self->request = malloc(self->requests * sizeof *self->request);
  if (!self->request)
    return refuse(self, reason, room, "out of memory");
  for (uint32_t i = 0; i < self->requests; ++i)
    self->request[i] = MPI_REQUEST_NULL;
  *transport = (sluice_transport){self,         rank, size,   post_send,
                                  post_receive, test, cancel, error_text};
  return 0;
}

static void close_world(const sluice_transport *transport, bool orderly) {
  shim *self = transport->user;
  if (orderly) {
    MPI_Comm_free(&self->comm);
    MPI_Finalize();
  }
  free(self->request);
  free(self);
}

static const char *library(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

const sluice_mpi_shim *sluice_mpi_shim_table(void) {
  static const sluice_mpi_shim table = {SLUICE_MPI_SHIM_VERSION, open_world, close_world,
                                        library};
  return &table;
}
