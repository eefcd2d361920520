#pragma once
// How long a step with its messages takes on other links than it was planned for: the
// same launches and messages in the same order, played through.

#include "passes/planning/LinkModel.h"

#include <cstdint>
#include <vector>

namespace sluice {

/// A program whose messages have been decided.
struct CollectiveTimeline {
  struct Launch {
    double us = 0;
    int64_t waits = 0; ///< so many messages are done before it
  };
  struct Message {
    int64_t bytes = 0;
    int64_t launchesBefore = 0; ///< so many launches are done when it begins
    CollectiveKind kind = CollectiveKind::AllReduce;
  };
  std::vector<Launch> launches;
  std::vector<Message> messages;
  double runs = 1; ///< of the program in an update
};

struct CollectiveTimes {
  double us = 0;       ///< until launches and messages are done
  double waitedUs = 0; ///< of it: no launch ran
  double linkUs = 0;   ///< messages travelled
};

CollectiveTimes replay(const CollectiveTimeline &timeline, int64_t ranks,
                       const LinkTopology &links);
/// Of all programs of an update, each as often as it runs.
CollectiveTimes replay(const std::vector<CollectiveTimeline> &programs, int64_t ranks,
                       const LinkTopology &links);

/// A link with which at most a share of the step waits.
struct EnoughLink {
  bool between = false; ///< the link between nodes; else the one within
  Link link;
  bool isThere = false;      ///< the links as they are are enough
  bool needsLatency = false; ///< no rate is enough at the present latency
  bool isNone = false;       ///< however fast it is: the other links are too slow
};

/// The least rate that is enough at the latency of the links, on the link that the ranks
/// reach farthest over; where no rate is, the most latency at its present rate or, if
/// that is not enough either, at a rate without limit (`bytesPerSecond` infinite).
EnoughLink enoughLink(const std::vector<CollectiveTimeline> &programs, int64_t ranks,
                      LinkTopology links, double share);

} // namespace sluice
