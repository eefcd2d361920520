/* The MPI shim: a transport (sluice/transport.h) over the host's MPI. MPI libraries
 * differ in their ABI, so this is compiled against the one that is installed, as a
 * library of its own that is loaded when it is asked for. */
#ifndef SLUICE_MPI_SHIM_H
#define SLUICE_MPI_SHIM_H

#include "runtime/include/sluice/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Goes up with every change of the table. */
#define SLUICE_MPI_SHIM_VERSION 1u

typedef struct sluice_mpi_shim {
  uint32_t version;
  /* Joins the job that the launcher started, or one of a single rank. Gives 0, or writes
   * the reason. Once in a process. */
  int (*open)(sluice_transport *transport, char *reason, size_t room);
  /* Ends it. `orderly`: with the other ranks, all messages are done. Else nothing is said
   * to them any more, and the launcher is left to see the process end. */
  void (*close)(const sluice_transport *transport, bool orderly);
  /* "Open MPI v4.1.4, ..." */
  const char *(*library)(void);
} sluice_mpi_shim;

/* The one symbol of the library. */
#define SLUICE_MPI_SHIM_SYMBOL "sluice_mpi_shim_table"
__attribute__((visibility("default"))) const sluice_mpi_shim *sluice_mpi_shim_table(void);

#ifdef __cplusplus
}
#endif

#endif
