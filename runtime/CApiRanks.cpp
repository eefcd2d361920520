// The C API: ranks that share updates.

#include "runtime/CApiHandles.h"
#include "runtime/comm/LocalGroup.h"
#include "runtime/comm/MessageCommunicator.h"
#include "runtime/comm/MpiCommunicator.h"
#include "runtime/comm/TcpCommunicator.h"

#include <cmath>

using namespace sluice;

static Status readTimeout(double seconds, CommOptions &options) {
  if (seconds == 0)
    return Status::success(); // the default
  if (!(seconds >= 0.001 && seconds <= 1e9))
    return Status::usage("a timeout of " + std::to_string(seconds) +
                         " s, expected 0.001 to 1e9, or 0 for 60");
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  return Status::success();
}

sluice_status sluice_comm_local(int ranks, double timeout, sluice_comm **comms) {
  return report(guarded([&] {
    if (!comms)
      return Status::usage("argument 'comms' is null");
    CommOptions options;
    if (Status status = readTimeout(timeout, options); !status.ok())
      return status;
    auto group = LocalGroup::create(ranks, options);
    if (!group)
      return group.status();
    std::vector<std::unique_ptr<sluice_comm>> made;
    for (int rank = 0; rank < ranks; ++rank) {
      auto end = (*group)->join(rank);
      if (!end)
        return end.status();
      made.push_back(std::make_unique<sluice_comm>(std::move(*end)));
    }
    for (size_t rank = 0; rank < made.size(); ++rank)
      comms[rank] = made[rank].release();
    return Status::success();
  }));
}

/// Of this process alone.
template <class Open>
static sluice_status openComm(double timeout, sluice_comm **comm, Open open) {
  return report(guarded([&] {
    if (!comm)
      return Status::usage("argument 'comm' is null");
    *comm = nullptr;
    CommOptions options;
    if (Status status = readTimeout(timeout, options); !status.ok())
      return status;
    Result<std::unique_ptr<Communicator>> made = open(options);
    if (!made)
      return made.status();
    *comm = new sluice_comm{std::move(*made)};
    return Status::success();
  }));
}

sluice_status sluice_comm_mpi(double timeout, sluice_comm **comm) {
  return openComm(timeout, comm,
                  [](const CommOptions &options) { return openMpi({options, {}}); });
}

sluice_status sluice_comm_tcp(const char *where, int rank, int size, double timeout,
                              sluice_comm **comm) {
  if (!where)
    return report(Status::usage("argument 'where' is null"));
  return openComm(timeout, comm, [&](const CommOptions &options) {
    return openTcp({where, rank, size, options.timeout}, options);
  });
}

sluice_status sluice_comm_custom(const sluice_transport *transport, double timeout,
                                 sluice_comm **comm) {
  if (!transport)
    return report(Status::usage("argument 'transport' is null"));
  return openComm(timeout, comm, [&](const CommOptions &options) {
    TransportOptions over;
    over.comm = options;
    return overTransport(*transport, std::move(over));
  });
}

int sluice_comm_rank(const sluice_comm *comm) { return comm ? comm->end->rank() : 0; }
int sluice_comm_size(const sluice_comm *comm) { return comm ? comm->end->size() : 0; }

void sluice_comm_abort(sluice_comm *comm, const char *reason) {
  if (comm)
    (void)guarded([&] {
      comm->end->abort(Status::failed(reason ? reason : "no reason was given"));
      return Status::success();
    });
}

sluice_status sluice_session_agree(sluice_session *session) {
  return with(session, [](Session &self) { return self.agreeOnState(); });
}

void sluice_comm_destroy(sluice_comm *comm) { delete comm; }

int64_t sluice_plan_ranks(const sluice_plan *plan) {
  return plan ? plan->plan->ranks() : 0;
}
