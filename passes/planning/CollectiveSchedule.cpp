#include "passes/planning/CollectiveSchedule.h"

#include <algorithm>
#include <map>

namespace sluice {

int64_t bucketBytesOf(double latencyUs, double bytesPerUs) {
  constexpr double share = 0.05;
  return static_cast<int64_t>(latencyUs * bytesPerUs * (1 / share - 1));
}

namespace {

/// Runs the nodes in time: of those that may run the first in the order given goes next,
/// collectives before launches.
class Scheduler {
public:
  explicit Scheduler(const CollectiveProblem &problem)
      : problem(problem), done(problem.nodes.size(), 0), used(done), waited(done),
        messageOf(problem.nodes.size(), -1) {
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      if (problem.nodes[i].isCollective()) {
        collectives.push_back(i);
        if (isGrouped(i))
          ++groups[keyOf(i)].missing;
        else
          ++unsent;
      } else
        for (int32_t before : problem.nodes[i].after)
          waited[static_cast<size_t>(before)] = 1;
    findFeeds();
  }

  CollectiveSchedule run() {
    size_t count = problem.nodes.size(), left = count;
    size_t first = 0; // all before it have run
    while (left > 0 && result.error.empty()) {
      while (done[first])
        ++first;
      size_t next = findReady(first);
      if (next == count) {
        if (!wait())
          result.error = "the launches and collectives wait for each other";
        continue;
      }
      --left;
      done[next] = 1;
      if (problem.nodes[next].isCollective())
        add(static_cast<int32_t>(next));
      else
        launch(static_cast<int32_t>(next));
    }
    send();
    double end = now;
    for (const CollectiveSchedule::Message &message : result.messages)
      end = std::max(end, message.endUs);
    result.waitedUs += end - now;
    debt.pass(end - now);
    result.timeUs = end + debt.take();
    return std::move(result);
  }

private:
  /// The message of a group and kind, as far as it is known.
  struct Group {
    std::vector<int32_t> nodes;
    int64_t missing = 0;
  };

  bool isGrouped(size_t index) const {
    return problem.given.empty() && problem.nodes[index].group >= 0;
  }
  std::pair<int32_t, int32_t> keyOf(size_t index) const {
    return {problem.nodes[index].group, problem.nodes[index].kind};
  }

  /// What has to come before has been done; `stalls`: only a message is missing, and it
  /// is on its way or can be sent.
  bool isReady(size_t index, bool &stalls) const {
    bool missing = false, incomplete = false;
    stalls = false;
    for (int32_t before : problem.nodes[index].after) {
      size_t b = static_cast<size_t>(before);
      if (!done[b])
        return false;
      if (!problem.nodes[b].isCollective())
        continue;
      bool isSent = messageOf[b] >= 0;
      missing |=
          !isSent || result.messages[static_cast<size_t>(messageOf[b])].endUs > now;
      incomplete |= !isSent && (!problem.given.empty() || isGrouped(b));
    }
    stalls = missing && !incomplete;
    return !missing;
  }

  /// What computes parts of later messages than the next one has time: done now, it would
  /// only hold bytes.
  bool isEarly(size_t index) const {
    return !feeds.empty() && feeds[index] < problem.given.size() &&
           feeds[index] > result.messages.size();
  }

  size_t findReady(size_t from) const {
    for (size_t i : collectives)
      if (bool stalls = false; !done[i] && !isEarly(i) && isReady(i, stalls))
        return i;
    for (size_t i = from; i < problem.nodes.size(); ++i) {
      bool stalls = false;
      if (!done[i] && !isEarly(i) && isReady(i, stalls))
        return i;
      if (!done[i] && stalls && held() > problem.heldBytes)
        break;
    }
    return problem.nodes.size();
  }

  /// Of messages made before: the first one that each node is needed for.
  void findFeeds() {
    if (problem.given.empty())
      return;
    feeds.assign(problem.nodes.size(), problem.given.size());
    for (size_t m = problem.given.size(); m-- > 0;)
      for (int32_t node : problem.given[m])
        feeds[static_cast<size_t>(node)] = m;
    for (size_t i = problem.nodes.size(); i-- > 0;)
      for (int32_t before : problem.nodes[i].after)
        feeds[static_cast<size_t>(before)] =
            std::min(feeds[static_cast<size_t>(before)], feeds[i]);
  }

  /// Of results that are not there yet, or that something still waits for.
  int64_t held() const { return heldNow; }

  void launch(int32_t index) {
    const CollectiveProblem::Node &node = problem.nodes[static_cast<size_t>(index)];
    now += node.us + debt.take();
    result.order.push_back(index);
    for (int32_t before : node.after)
      if (const auto &other = problem.nodes[static_cast<size_t>(before)];
          other.isCollective() && !used[static_cast<size_t>(before)]) {
        used[static_cast<size_t>(before)] = 1;
        heldNow -= other.bytes;
      }
    if (!open.empty() && problem.windowUs > 0 && now - openedUs >= problem.windowUs)
      send();
  }

  void add(int32_t index) {
    const CollectiveProblem::Node &node = problem.nodes[static_cast<size_t>(index)];
    if (waited[static_cast<size_t>(index)])
      heldNow += node.bytes;
    if (!problem.given.empty()) {
      sendGiven();
      return;
    }
    if (isGrouped(static_cast<size_t>(index))) {
      Group &group = groups[keyOf(static_cast<size_t>(index))];
      group.nodes.push_back(index);
      if (--group.missing == 0)
        send(group.nodes);
      return;
    }
    --unsent;
    if (!open.empty() && problem.nodes[static_cast<size_t>(open[0])].kind != node.kind)
      send();
    if (open.empty())
      openedUs = now;
    open.push_back(index);
    openBytes += node.bytes;
    if (openBytes >= problem.bucketBytes || unsent == 0)
      send();
  }

  /// The next messages of those that were made before, when all of their parts are there.
  void sendGiven() {
    while (result.messages.size() < problem.given.size()) {
      const std::vector<int32_t> &next = problem.given[result.messages.size()];
      for (int32_t node : next)
        if (!done[static_cast<size_t>(node)])
          return;
      std::vector<int32_t> nodes = next;
      send(nodes);
    }
  }

  void send() {
    if (!open.empty())
      send(open);
    openBytes = 0;
  }

  /// As one message; empties `nodes`.
  void send(std::vector<int32_t> &nodes) {
    int64_t bytes = 0;
    for (int32_t node : nodes)
      bytes += problem.nodes[static_cast<size_t>(node)].bytes;
    CollectiveSchedule::Message message;
    message.launchesBefore = static_cast<int64_t>(result.order.size());
    message.beginUs = std::max(now, linkFreeUs);
    message.endUs =
        message.beginUs +
        problem.messageUs(problem.nodes[static_cast<size_t>(nodes[0])].kind, bytes);
    linkFreeUs = message.endUs;
    debt.add(problem.host.us(bytes));
    for (int32_t node : nodes)
      messageOf[static_cast<size_t>(node)] = static_cast<int32_t>(result.messages.size());
    message.nodes = std::move(nodes);
    result.messages.push_back(std::move(message));
    nodes.clear();
  }

  /// No launch may run: what waits to be sent is sent, else time goes on to the end of
  /// the next message.
  bool wait() {
    if (!open.empty()) {
      send();
      return true;
    }
    double next = -1;
    for (const CollectiveSchedule::Message &message : result.messages)
      if (message.endUs > now && (next < 0 || message.endUs < next))
        next = message.endUs;
    if (next < 0)
      return sendPartOfGroup();
    result.waitedUs += next - now;
    debt.pass(next - now);
    now = next;
    return true;
  }

  /// Where what a group still misses waits for what it has.
  bool sendPartOfGroup() {
    for (auto &[key, group] : groups)
      if (!group.nodes.empty()) {
        send(group.nodes);
        return true;
      }
    return false;
  }

  const CollectiveProblem &problem;
  CollectiveSchedule result;
  std::map<std::pair<int32_t, int32_t>, Group> groups; // by group and kind
  HostDebt debt;
  std::vector<char> done;         // launched, or given to a message
  std::vector<char> used;         // of collectives: a launch has waited for it
  std::vector<char> waited;       // a launch needs it: what none needs holds no bytes
  std::vector<int32_t> messageOf; // of collectives; -1: not sent
  std::vector<int32_t> open;      // the next message
  std::vector<size_t> collectives;
  std::vector<size_t> feeds; // empty unless messages were made before
  int64_t openBytes = 0, heldNow = 0, unsent = 0;
  double now = 0, linkFreeUs = 0, openedUs = 0;
};

} // namespace

double CollectiveProblem::messageUs(int32_t kind, int64_t bytes) const {
  return ways.empty() ? latencyUs + static_cast<double>(bytes) / bytesPerUs
                      : fastestWay(ways[static_cast<size_t>(kind)], bytes).us(bytes);
}

int64_t fastestBucket(const CollectiveProblem &problem) {
  int64_t total = 0;
  for (const CollectiveProblem::Node &node : problem.nodes)
    total += std::max<int64_t>(node.bytes, 0);
  constexpr int halves = 6;
  int64_t best = std::max(problem.bucketBytes, total);
  double least = 0;
  for (int i = -1; i <= halves; ++i) {
    int64_t bytes = i < 0    ? best
                    : i == 0 ? problem.bucketBytes
                             : std::max<int64_t>(1, total >> i);
    if (i >= 0 && bytes >= best)
      continue;
    CollectiveProblem tried = problem;
    tried.bucketBytes = bytes;
    double us = scheduleCollectives(tried).timeUs;
    if (i < 0 || us < least)
      least = us, best = bytes;
  }
  return best;
}

CollectiveSchedule scheduleCollectives(const CollectiveProblem &problem) {
  return Scheduler(problem).run();
}

} // namespace sluice
