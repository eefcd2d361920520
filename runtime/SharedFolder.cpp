#include "runtime/SharedFolder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <vector>

namespace sluice {

namespace fs = std::filesystem;

/// Of the file: unlike that of other jobs.
static uint64_t newNumber() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count()) * 0x9e3779b97f4a7c15 ^
         static_cast<uint64_t>(getpid());
}

static bool leave(const fs::path &path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  return static_cast<bool>(std::ofstream(path) << "ranks look for this file\n");
}

Status checkSharedFolder(Communicator &comm, const std::string &folder) {
  uint64_t number = newNumber();
  const Part whose{&number, sizeof number};
  const CallLabel label{"start", 0, "folder of checkpoints"};
  // Who is late sees the file of this start, not of another.
  if (Status status = comm.broadcast({&whose, 1}, 0, label); !status.ok())
    return status;
  fs::path path = fs::path(folder) / (".ranks-" + std::to_string(number));
  std::vector<uint64_t> sees(static_cast<size_t>(comm.size()));
  std::vector<ElementRange> shards;
  for (size_t r = 0; r < sees.size(); ++r)
    shards.push_back({r, r + 1});
  const Part part{sees.data(), sees.size() * sizeof(uint64_t)};
  uint64_t &own = sees[static_cast<size_t>(comm.rank())];
  if (comm.rank() == 0)
    own = leave(path);
  Status status = comm.barrier(label); // the file is there
  std::error_code error;
  if (status.ok() && comm.rank() != 0)
    own = fs::exists(path, error);
  if (status.ok())
    status = comm.allGather({&part, 1}, sizeof(uint64_t), shards, label);
  if (comm.rank() == 0)
    fs::remove(path, error);
  if (!status.ok())
    return status;
  if (sees[0] == 0)
    return Status::refused("rank 0 cannot write into the folder '" + folder + "'");
  auto blind = std::find(sees.begin(), sees.end(), uint64_t{0});
  if (blind == sees.end())
    return Status::success();
  return Status::refused("rank " + std::to_string(blind - sees.begin()) + " of " +
                         std::to_string(sees.size()) + " does not see the folder '" +
                         folder +
                         "' that rank 0 writes into: ranks write a checkpoint together, "
                         "so name one that all of them share");
}

} // namespace sluice
