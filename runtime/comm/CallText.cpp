#include "runtime/comm/CallText.h"

#include <algorithm>

namespace sluice {

std::string_view commKindName(CommKind kind) {
  switch (kind) {
  case CommKind::local:
    return "local";
  case CommKind::mpi:
    return "mpi";
  case CommKind::nccl:
    return "nccl";
  case CommKind::tcp:
    return "tcp";
  case CommKind::custom:
    return "custom";
  }
  return "";
}

std::string_view commOpName(CommOp op) {
  switch (op) {
  case CommOp::allReduce:
    return "all_reduce";
  case CommOp::reduceScatter:
    return "reduce_scatter";
  case CommOp::allGather:
    return "all_gather";
  case CommOp::broadcast:
    return "broadcast";
  case CommOp::send:
    return "send";
  case CommOp::receive:
    return "receive";
  case CommOp::barrier:
    return "barrier";
  }
  return "";
}

static std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string callText(const CommCall &call) {
  return std::string(commOpName(call.op)) + " " + quoted(call.label.name) + " (program " +
         quoted(call.label.program) + ", update " + std::to_string(call.label.update) +
         ")";
}

std::string ranksText(const std::vector<int> &ranks, int size) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0)
      text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text + " of " + std::to_string(size);
}

static std::string secondsText(std::chrono::milliseconds time) {
  if (time.count() % 1000 == 0)
    return std::to_string(time.count() / 1000) + " s";
  return std::to_string(time.count()) + " ms";
}

Status missingRanks(const std::vector<int> &ranks, int size, const CommCall &call,
                    std::chrono::milliseconds timeout) {
  return Status::failed(ranksText(ranks, size) + " did not arrive at " + callText(call) +
                        " within " + secondsText(timeout));
}

Status stalledRanks(const std::vector<int> &ranks, int size, const CommCall &call,
                    std::chrono::milliseconds timeout) {
  return Status::failed(ranksText(ranks, size) + " came to " + callText(call) +
                        " but moved nothing for " + secondsText(timeout));
}

bool callsMatch(const CommCall &a, const CommCall &b) {
  bool pair = (a.op == CommOp::send && b.op == CommOp::receive) ||
              (a.op == CommOp::receive && b.op == CommOp::send);
  if (!pair && (a.op != b.op || a.peer != b.peer))
    return false;
  return a.type == b.type && a.elementBytes == b.elementBytes && a.bytes == b.bytes &&
         std::ranges::equal(a.shards, b.shards) && a.label.update == b.label.update &&
         a.label.index == b.label.index && a.label.name == b.label.name &&
         a.label.program == b.label.program;
}

Status callsDiffer(int rankA, const CommCall &a, int rankB, const CommCall &b, int size) {
  auto text = [](const CommCall &call) {
    return callText(call) + " number " + std::to_string(call.label.index) + " with " +
           std::to_string(call.bytes) + " bytes";
  };
  std::string one = text(a), other = text(b);
  std::string why = one == other ? ", in other types, shards or roots" : "";
  return Status::failed("rank " + std::to_string(rankB) + " of " + std::to_string(size) +
                        " is at " + other + ", but rank " + std::to_string(rankA) +
                        " at " + one + why + ": ranks must run the same plan in step");
}

} // namespace sluice
