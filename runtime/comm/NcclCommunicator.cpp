#include "runtime/comm/NcclCommunicator.h"

#include "runtime/comm/CallText.h"
#include "runtime/comm/MessageCursor.h"
#include "runtime/comm/NcclLibrary.h"

#include <mutex>
#include <thread>

namespace sluice {

class NcclCommunicator final : public Communicator {
public:
  NcclCommunicator(Communicator &through, const NcclOptions &options,
                   const NcclLibrary &nccl, NcclLibrary::Comm comm)
      : Communicator(CommKind::nccl, through.rank(), through.size()), through(through),
        options(options), nccl(nccl), comm(comm) {}
  ~NcclCommunicator() override;

  void abort(const Status &reason) override;
  Status state() const override {
    std::lock_guard lock(mutex);
    return error;
  }

protected:
  Status perform(const CommCall &call) override;

private:
  NcclResult putGroup(const CommCall &call);
  NcclResult put(const CommCall &call);
  NcclResult putShards(const CommCall &call);
  Status await(const CommCall &call);
  Status ncclFailed(const CommCall &call, NcclResult result);
  Status fail(Status reason);

  Communicator &through;
  NcclOptions options;
  NcclLibrary nccl;
  NcclLibrary::Comm comm;
  mutable std::mutex mutex; ///< of `comm` becoming null and of `error`
  Status error;
};

static NcclType typeOf(SumType type) {
  switch (type) {
  case SumType::f32:
    return ncclFloat32;
  case SumType::f64:
    return ncclFloat64;
  case SumType::i64:
    return ncclInt64;
  }
  return ncclUint8;
}

NcclCommunicator::~NcclCommunicator() {
  if (comm)
    nccl.commDestroy(comm);
}

/// Ends what is under way on the device; the others see it, or are told by `through`.
Status NcclCommunicator::fail(Status reason) {
  std::lock_guard lock(mutex);
  if (error.ok())
    error = std::move(reason);
  if (comm)
    nccl.commAbort(comm);
  comm = nullptr;
  return error;
}

void NcclCommunicator::abort(const Status &reason) {
  through.abort(reason);
  (void)fail(Status::failed(ranksText({rank()}, size()) + " gave up: " + reason.message));
}

Status NcclCommunicator::ncclFailed(const CommCall &call, NcclResult result) {
  return fail(
      Status::failed("NCCL at " + callText(call) + ": " + nccl.getErrorString(result)));
}

/// NCCL's own calls want shards of one length; a reduction or broadcast for each does
/// not.
NcclResult NcclCommunicator::putShards(const CommCall &call) {
  const bool sums = call.op == CommOp::reduceScatter;
  const NcclType type = sums ? typeOf(call.type) : ncclUint8;
  const uint64_t unit = sums ? call.elementBytes : 1;
  MessageCursor cursor;
  for (int root = 0; root < size(); ++root) {
    uint64_t at = call.shards[root].begin * call.elementBytes;
    uint64_t end = call.shards[root].end * call.elementBytes;
    if (at < end)
      cursor.seek(call.parts, at);
    while (at < end) {
      uint64_t bytes = std::min(end - at, cursor.contiguous());
      void *data = cursor.data();
      NcclResult result = sums ? nccl.reduce(data, data, bytes / unit, type, ncclSum,
                                             root, comm, options.stream.stream)
                               : nccl.broadcast(data, data, bytes, type, root, comm,
                                                options.stream.stream);
      if (result != ncclSuccess)
        return result;
      cursor.advance(bytes);
      at += bytes;
    }
  }
  return ncclSuccess;
}

NcclResult NcclCommunicator::put(const CommCall &call) {
  if (call.op == CommOp::reduceScatter || call.op == CommOp::allGather)
    return putShards(call);
  void *stream = options.stream.stream;
  for (const Part &part : call.parts) {
    NcclResult result = ncclSuccess;
    if (part.bytes == 0)
      continue;
    if (call.op == CommOp::allReduce)
      result = nccl.allReduce(part.data, part.data, part.bytes / call.elementBytes,
                              typeOf(call.type), ncclSum, comm, stream);
    else if (call.op == CommOp::broadcast)
      result = nccl.broadcast(part.data, part.data, part.bytes, ncclUint8, call.peer,
                              comm, stream);
    else if (call.op == CommOp::send)
      result = nccl.send(part.data, part.bytes, ncclUint8, call.peer, comm, stream);
    else if (call.op == CommOp::receive)
      result = nccl.recv(part.data, part.bytes, ncclUint8, call.peer, comm, stream);
    if (result != ncclSuccess)
      return result;
  }
  return ncclSuccess;
}

/// One group is one message, however many parts it has.
NcclResult NcclCommunicator::putGroup(const CommCall &call) {
  if (NcclResult result = nccl.groupStart(); result != ncclSuccess)
    return result;
  NcclResult result = put(call), ended = nccl.groupEnd();
  if (result == ncclSuccess && ended != ncclInProgress)
    result = ended;
  return result;
}

/// NCCL waits for ever for a rank that does not come, so this looks at the clock.
Status NcclCommunicator::await(const CommCall &call) {
  auto start = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    NcclResult result = ncclSuccess;
    bool done = false;
    if (Status status = options.stream.query(options.stream.stream, done); !status.ok())
      return fail(std::move(status));
    {
      std::lock_guard lock(mutex);
      if (!comm)
        return error;
      if (NcclResult asked = nccl.commGetAsyncError(comm, &result); asked != ncclSuccess)
        result = asked;
    }
    if (result != ncclSuccess && result != ncclInProgress)
      return ncclFailed(call, result);
    if (done && result == ncclSuccess)
      return Status::success();
    if (std::chrono::steady_clock::now() - start >= options.comm.timeout)
      break;
    if (round > 1000)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  // The ranks that wait meet here, and so learn who does not.
  Status missing = through.barrier(call.label);
  return fail(missing.ok() ? Status::failed("all ranks came to " + callText(call) +
                                            ", but NCCL did not end it in time")
                           : std::move(missing));
}

Status NcclCommunicator::perform(const CommCall &call) {
  if (Status status = state(); !status.ok())
    return status;
  if (call.op == CommOp::barrier) {
    Status status = through.barrier(call.label);
    return status.ok() ? status : fail(std::move(status));
  }
  NcclResult result = ncclSuccess;
  {
    std::lock_guard lock(mutex);
    if (!comm)
      return error;
    result = putGroup(call);
  }
  return result == ncclSuccess ? await(call) : ncclFailed(call, result);
}

Result<std::unique_ptr<Communicator>> openNccl(Communicator &through,
                                               const NcclOptions &options) {
  if (!options.stream.query)
    return Status::refused(
        "NCCL sums memory of CUDA devices, but this plan is for 'cpu': "
        "use '--comm mpi' or '--comm local'");
  Result<NcclLibrary> nccl = loadNccl(options.library);
  if (!nccl)
    return nccl.status();
  int version = 0;
  if (nccl->getVersion(&version) != ncclSuccess || version < 2700)
    return Status::cannotRunHere("NCCL of version number " + std::to_string(version) +
                                 " is too old, expected 2.7 (2700) or later");
  NcclId id = {};
  const Part part{&id, sizeof id};
  NcclResult result = through.rank() == 0 ? nccl->getUniqueId(&id) : ncclSuccess;
  if (result != ncclSuccess)
    through.abort(Status::failed(std::string("NCCL gives no unique id: ") +
                                 nccl->getErrorString(result)));
  if (Status status = through.broadcast({&part, 1}, 0, {"start", 0, "NCCL's id"});
      !status.ok())
    return status;
  NcclLibrary::Comm comm = nullptr;
  result = nccl->commInitRank(&comm, through.size(), id, through.rank());
  if (result != ncclSuccess)
    return Status::failed(std::string("NCCL does not start: ") +
                          nccl->getErrorString(result));
  return std::unique_ptr<Communicator>(
      new NcclCommunicator(through, options, *nccl, comm));
}

} // namespace sluice
