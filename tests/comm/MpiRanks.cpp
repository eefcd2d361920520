// One rank of a job that MpiTest starts: does what its argument says and writes one line.

#include "runtime/comm/Agree.h"
#include "runtime/comm/MpiCommunicator.h"
#include "tests/comm/Ranks.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

// Under the address sanitizer: MPI libraries keep memory until the process ends.
extern "C" const char *__asan_default_options() { return "detect_leaks=0"; }

namespace sluice::test {

static const CallLabel label{"step", 41, "grad/w", 3};

/// Why not, or "".
static std::string sumsAreTheTrees(Communicator &comm, size_t count) {
  std::vector<float> sum =
      treeSum<float>([&](int r) { return valuesOf<float>(r, count); }, comm.size());
  for (size_t parts : {1, 13}) {
    std::vector<float> values = valuesOf<float>(comm.rank(), count);
    std::vector<Part> list = cut(values, parts);
    if (Status status = comm.allReduce(list, SumType::f32, label); !status.ok())
      return status.message;
    if (values != sum)
      return "other bits in " + std::to_string(count) + " elements";
    std::vector<ElementRange> shards = unevenShards(count, comm.size());
    values = valuesOf<float>(comm.rank(), count);
    list = cut(values, parts);
    Status status = comm.reduceScatter(list, SumType::f32, shards, label);
    if (status.ok())
      status = comm.allGather(list, sizeof(float), shards, label);
    if (!status.ok())
      return status.message;
    for (const ElementRange &shard : shards)
      if (!std::equal(&values[0] + shard.begin, &values[0] + shard.end,
                      &sum[0] + shard.begin))
        return "other bits in a shard of " + std::to_string(count) + " elements";
  }
  return "";
}

static std::string messagesArrive(Communicator &comm, size_t count) {
  std::vector<float> values = valuesOf<float>(comm.rank(), count);
  std::vector<Part> list = cut(values, 3);
  if (Status status = comm.broadcast(list, comm.size() - 1, label); !status.ok())
    return status.message;
  if (values != valuesOf<float>(comm.size() - 1, count))
    return "a broadcast of other bytes";
  if (comm.rank() > 1)
    return "";
  values = valuesOf<float>(comm.rank(), count);
  list = cut(values, 5);
  Status status =
      comm.rank() == 0 ? comm.send(list, 1, label) : comm.receive(list, 0, label);
  if (!status.ok())
    return status.message;
  return values == valuesOf<float>(0, count) ? "" : "a message of other bytes";
}

static std::string collectives(Communicator &comm) {
  for (size_t count : {1, 400, 5000, 1000003}) {
    std::string why = sumsAreTheTrees(comm, count);
    if (why.empty())
      why = messagesArrive(comm, count);
    if (!why.empty())
      return why;
  }
  Status status = agree(comm, std::as_bytes(std::span("plan")), "plan");
  return status.ok() ? "fine" : status.message;
}

static std::string step(Communicator &comm, const std::string &what) {
  const int last = comm.size() - 1;
  std::vector<float> values(100000, 1);
  std::vector<Part> list = cut(values, 3);
  if (Status status = comm.allReduce(list, SumType::f32, label); !status.ok())
    return status.message;
  if (comm.rank() == last) {
    if (what == "kill")
      std::raise(SIGKILL);
    if (what == "abort") {
      comm.abort(Status::damaged("the data ended"));
      return comm.state().message;
    }
    if (what == "leave")
      return "left";
  }
  const bool other = what == "mismatch" && comm.rank() == last;
  Status status =
      comm.allReduce(list, SumType::f32, {"step", 42, other ? "grad/b" : "grad/w", 3});
  return status.ok() ? "fine" : status.message;
}

static int run(int count, char **arguments) {
  const std::string what = count > 1 ? arguments[1] : "collectives";
  MpiOptions options;
  options.shim = SLUICE_MPI_SHIM;
  options.comm.crowded = true;
  options.comm.timeout = std::chrono::milliseconds(what == "kill" ? 2000 : 60000);
  auto comm = openMpi(options);
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.status().message.c_str());
    return static_cast<int>(comm.status().code);
  }
  std::string line = "rank " + std::to_string((*comm)->rank()) + ": ";
  line += what == "collectives" ? collectives(**comm) : step(**comm, what);
  line += "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
    return 1;
  bool ok = (*comm)->state().ok();
  return ok ? 0 : static_cast<int>(StatusCode::failed);
}

} // namespace sluice::test

int main(int count, char **arguments) { return sluice::test::run(count, arguments); }
