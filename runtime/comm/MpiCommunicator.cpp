#include "runtime/comm/MpiCommunicator.h"

#include "runtime/comm/DynamicLibrary.h"
#include "runtime/comm/MessageCommunicator.h"
#include "runtime/comm/mpi_shim.h"

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

namespace sluice {

static constexpr const char *shimFile = "libsluice_mpi.so";
static constexpr std::chrono::seconds startTimeout{30};

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

namespace {
/// What MPI's start gives. It may outlive the wait for it.
struct Start {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int code = 0;
  sluice_transport transport = {};
  char reason[256] = {};
};
} // namespace

/// MPI waits without end for a rank that dies before all have started, so it starts on a
/// thread of its own, which is left behind in that case.
static Status start(const sluice_mpi_shim &shim, std::chrono::milliseconds timeout,
                    sluice_transport &transport) {
  auto start = std::make_shared<Start>();
  try {
    std::thread([start, open = shim.open] {
      sluice_transport opened = {};
      char reason[sizeof start->reason] = {};
      int code = open(&opened, reason, sizeof reason);
      std::lock_guard lock(start->mutex);
      start->transport = opened;
      std::memcpy(start->reason, reason, sizeof reason);
      start->code = code;
      start->done = true;
      start->changed.notify_one();
    }).detach();
  } catch (const std::system_error &error) {
    return Status::cannotRunHere(
        std::string("cannot start the thread that starts MPI: ") + error.what());
  }
  std::unique_lock lock(start->mutex);
  if (!start->changed.wait_for(lock, timeout, [&] { return start->done; }))
    return Status::failed("MPI did not start within " +
                          std::to_string(timeout.count() / 1000) +
                          " s: another rank has ended or does not come");
  if (start->code != 0)
    return Status::cannotRunHere(std::string("MPI does not start: ") + start->reason);
  transport = start->transport;
  return Status::success();
}

/// A launcher that this MPI does not know starts processes each of which is alone.
static Status checkLauncher(int ranks) {
  for (const char *name : {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    const char *text = std::getenv(name);
    int started = text ? std::atoi(text) : 0;
    if (ranks == 1 && started > 1)
      return Status::cannotRunHere(
          "the launcher has started " + std::to_string(started) + " processes ('" + name +
          "'), but MPI sees one: they have no interface in common; start them with this "
          "MPI's own 'mpirun', or under Slurm with one of 'srun --mpi=list'");
  }
  return Status::success();
}

Result<std::unique_ptr<Communicator>> openMpi(const MpiOptions &options) {
  Result<const sluice_mpi_shim *> shim = loadShim(options.shim);
  if (!shim)
    return shim.status();
  sluice_transport transport = {};
  // Launchers take their time, whatever a collective may take.
  auto timeout = std::max<std::chrono::milliseconds>(options.comm.timeout, startTimeout);
  if (Status status = start(**shim, timeout, transport); !status.ok())
    return status;
  if (Status status = checkLauncher(transport.size); !status.ok()) {
    (*shim)->close(&transport, true);
    return status;
  }
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
