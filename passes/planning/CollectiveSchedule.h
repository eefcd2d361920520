#pragma once
// Which collectives become one message (a bucket), and where the launches that need their
// results go, so that messages travel while other launches run.

#include "passes/planning/LinkModel.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// Launches and collectives in an order that is valid when each collective is waited for
/// at once.
struct CollectiveProblem {
  struct Node {
    double us = 0;              ///< of a launch
    int64_t bytes = 0;          ///< of a collective's message; launches: -1
    int32_t kind = 0;           ///< collectives of different kinds share no message
    std::vector<int32_t> after; ///< indices of nodes that come before it
    /// All collectives of a group and kind are one message, whatever its bytes; -1: none.
    int32_t group = -1;
    bool isCollective() const { return bytes >= 0; }
  };
  std::vector<Node> nodes;

  double latencyUs = 0, bytesPerUs = 1; ///< a message takes latency + bytes / rate
  /// Or, if there are any, the least of those of its kind.
  std::vector<std::vector<CollectiveCost>> ways;
  HostWork host;
  int64_t bucketBytes = 0; ///< a message is sent when it has so many
  double windowUs = 0;     ///< or when its first part has waited so long; 0: no limit
  /// Bytes of collectives that launches may be put off for; then they wait.
  int64_t heldBytes = INT64_MAX;
  /// Messages made before, which all ranks send: lists of nodes, in order. Empty: free.
  std::vector<std::vector<int32_t>> given;

  double messageUs(int32_t kind, int64_t bytes) const;
};

struct CollectiveSchedule {
  struct Message {
    std::vector<int32_t> nodes; ///< collectives
    int64_t launchesBefore = 0; ///< so many launches of `order` are done when it begins
    double beginUs = 0, endUs = 0;
  };
  std::vector<int32_t> order; ///< of launches
  std::vector<Message> messages;
  double timeUs = 0;   ///< until all is done
  double waitedUs = 0; ///< of it: no launch ran
  std::string error;   ///< empty: a schedule
};

/// The bytes from which a message's latency is at most a twentieth of its time.
int64_t bucketBytesOf(double latencyUs, double bytesPerUs);

/// The `bucketBytes` with which the schedule is shortest, of all in one message, those in
/// which latency is at most a twentieth, then halves of the whole down to 1/64: what
/// travels early may be worth more latency. Of equals the largest.
int64_t fastestBucket(const CollectiveProblem &problem);

CollectiveSchedule scheduleCollectives(const CollectiveProblem &problem);

} // namespace sluice
