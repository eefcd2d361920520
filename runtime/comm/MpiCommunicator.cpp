#include "runtime/comm/MpiCommunicator.h"

#include "runtime/comm/DynamicLibrary.h"
#include "runtime/comm/MessageCommunicator.h"
#include "runtime/comm/mpi_shim.h"

namespace sluice {

static constexpr const char *shimFile = "libsluice_mpi.so";

static Status notAvailable(const std::string &why) {
  return Status::cannotRunHere(
      "MPI is not available: " + why +
      "; install an MPI (libopenmpi-dev) and build again, or use '--comm local'");
}

static Result<const sluice_mpi_shim *> loadShim(const std::string &file) {
  std::vector<std::string> files{file};
  if (file.empty()) {
    files.clear();
    for (const char *place : {"", "../lib/", "../runtime/comm/", "../../runtime/comm/"})
      files.push_back(besideThisCode(std::string(place) + shimFile));
    files.push_back(shimFile);
  }
  // Plug-ins of MPI libraries look for the library's symbols among all.
  Result<void *> library = openLibrary(files, true);
  if (!library)
    return notAvailable(library.status().message);
  auto table = reinterpret_cast<decltype(&sluice_mpi_shim_table)>(
      symbolOf(*library, SLUICE_MPI_SHIM_SYMBOL));
  if (!table || table()->version != SLUICE_MPI_SHIM_VERSION)
    return notAvailable(std::string("'") + shimFile +
                        "' belongs to another version of this program");
  return table();
}

Result<std::unique_ptr<Communicator>> openMpi(const MpiOptions &options) {
  Result<const sluice_mpi_shim *> shim = loadShim(options.shim);
  if (!shim)
    return shim.status();
  sluice_transport transport = {};
  char reason[256] = {};
  if ((*shim)->open(&transport, reason, sizeof reason) != 0)
    return Status::cannotRunHere(std::string("MPI does not start: ") + reason);
  TransportOptions over;
  over.comm = options.comm;
  over.kind = CommKind::mpi;
  over.closeTogether = true;
  over.close = [table = *shim, transport](bool failed) {
    table->close(&transport, !failed);
  };
  return overTransport(transport, std::move(over));
}

} // namespace sluice
