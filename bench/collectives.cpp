// All-reduce of ranks on one machine: as threads, as processes over MPI, and by the MPI
// library's own MPI_Allreduce, in turns. Started by the launcher; rank 0 writes
// "BYTES WHAT MEDIAN_US LEAST_US MOST_US".

#include "runtime/comm/LocalGroup.h"
#include "runtime/comm/MpiCommunicator.h"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace sluice;

static const CallLabel label{"bench", 0, "all_reduce"};
static constexpr int rounds = 9;

static double nowUs() { return MPI_Wtime() * 1e6; }

/// The others sleep until rank 0 comes, where MPI_Barrier would keep a core busy.
static void quietBarrier() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done)
      return;
    usleep(500);
  }
}

static double timed(int calls, const std::function<void()> &call) {
  MPI_Barrier(MPI_COMM_WORLD);
  call();
  double start = nowUs();
  for (int i = 0; i < calls; ++i)
    call();
  return (nowUs() - start) / calls;
}

/// Of threads of this process; the other processes sleep meanwhile.
static double timedThreads(int ranks, uint64_t bytes, int calls) {
  auto group = LocalGroup::create(ranks);
  std::vector<std::thread> threads;
  double us = 0;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto comm = (*group)->join(r);
      std::vector<float> values(bytes / 4);
      const Part part{values.data(), bytes};
      (void)(*comm)->allReduce({&part, 1}, SumType::f32, label);
      double start = nowUs();
      for (int i = 0; i < calls; ++i)
        (void)(*comm)->allReduce({&part, 1}, SumType::f32, label);
      if (r == 0)
        us = (nowUs() - start) / calls;
    });
  for (std::thread &thread : threads)
    thread.join();
  return us;
}

static void report(uint64_t bytes, const char *what, std::vector<double> us) {
  std::ranges::sort(us);
  std::printf("%llu %s %.2f %.2f %.2f\n", static_cast<unsigned long long>(bytes), what,
              us[us.size() / 2], us.front(), us.back());
  std::fflush(stdout);
}

static int run() {
  auto comm = openMpi();
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.status().message.c_str());
    return 1;
  }
  const int rank = (*comm)->rank(), ranks = (*comm)->size();
  for (uint64_t bytes = 256; bytes <= 64 << 20; bytes *= 16) {
    std::vector<float> values(bytes / 4);
    const Part part{values.data(), bytes};
    const int calls = static_cast<int>(std::clamp<uint64_t>((64 << 20) / bytes, 2, 1000));
    std::vector<double> ours, theirs, threads;
    Status status;
    for (int round = 0; round < rounds; ++round) {
      ours.push_back(timed(calls, [&] {
        if (status.ok())
          status = (*comm)->allReduce({&part, 1}, SumType::f32, label);
      }));
      theirs.push_back(timed(calls, [&] {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }));
      if (rank == 0)
        threads.push_back(timedThreads(ranks, bytes, calls));
      quietBarrier();
    }
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.message.c_str());
      return 1;
    }
    if (rank != 0)
      continue;
    report(bytes, "local", threads);
    report(bytes, "mpi", ours);
    report(bytes, "peer", theirs);
  }
  return 0;
}

int main() { return run(); }
