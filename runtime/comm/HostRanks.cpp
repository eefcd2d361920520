#include "runtime/comm/HostRanks.h"

#include "runtime/Checksum.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace sluice {

/// Equal on ranks of one running kernel, and of containers with one host name.
static uint64_t hostId() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0)
    text += name;
  return fnv1a(text.data(), text.size());
}

Result<int> ranksOnThisHost(Communicator &comm) {
  if (comm.kind() == CommKind::local)
    return comm.size();
  size_t ranks = static_cast<size_t>(comm.size());
  std::vector<uint64_t> ids(ranks);
  std::vector<ElementRange> shards;
  for (size_t r = 0; r < ranks; ++r)
    shards.push_back({r, r + 1});
  const uint64_t own = ids[static_cast<size_t>(comm.rank())] = hostId();
  const Part part{ids.data(), ids.size() * sizeof(uint64_t)};
  Status status =
      comm.allGather({&part, 1}, sizeof(uint64_t), shards, {"start", 0, "hosts"});
  if (!status.ok())
    return status;
  return static_cast<int>(std::count(ids.begin(), ids.end(), own));
}

} // namespace sluice
