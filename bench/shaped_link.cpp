// A transport between ranks of one process over links of a given latency and rate, for
// bench/ranks.py: a message leaves when the ones before it on its link have left, takes
// its bytes at the rate to do so, and arrives a latency later. Opened by ctypes.

#include "runtime/include/sluice/transport.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Message {
  std::vector<uint8_t> bytes;
  Clock::time_point left, arrives;
};

/// An operation under way: a send has its message from the start, a receive once one
/// meets it.
struct Operation {
  std::shared_ptr<Message> message;
  void *into = nullptr; ///< of receives
  bool isReceive = false;
};

/// Of one pair and channel: what waits for the other side, in order.
struct Channel {
  std::deque<std::shared_ptr<Message>> sent;
  std::deque<Operation *> receives;
};

struct Links;
struct End {
  Links *links;
  int rank;
  std::vector<Operation> operations;
};

struct Links {
  std::mutex mutex;
  double latencyUs, bytesPerUs; ///< 0 bytes: as fast as memory
  std::deque<End> ends;
  std::map<std::pair<int, int>, Clock::time_point> free;
  std::map<std::tuple<int, int, int>, Channel> channels;
};

Clock::duration microseconds(double us) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::micro>(us));
}

void meet(Channel &channel) {
  while (!channel.sent.empty() && !channel.receives.empty()) {
    channel.receives.front()->message = channel.sent.front();
    channel.sent.pop_front();
    channel.receives.pop_front();
  }
}

int postSend(void *user, uint32_t request, const void *data, size_t bytes, int to,
             int channel) {
  End &end = *static_cast<End *>(user);
  Links &links = *end.links;
  auto message = std::make_shared<Message>();
  const auto *from = static_cast<const uint8_t *>(data);
  message->bytes.assign(from, from + bytes);
  std::lock_guard lock(links.mutex);
  auto &free = links.free[{end.rank, to}];
  double us = links.bytesPerUs > 0 ? double(bytes) / links.bytesPerUs : 0;
  message->left = free = std::max(Clock::now(), free) + microseconds(us);
  message->arrives = message->left + microseconds(links.latencyUs);
  end.operations[request] = {message, nullptr, false};
  Channel &line = links.channels[{end.rank, to, channel}];
  line.sent.push_back(message);
  meet(line);
  return 0;
}

int postReceive(void *user, uint32_t request, void *data, size_t, int from, int channel) {
  End &end = *static_cast<End *>(user);
  std::lock_guard lock(end.links->mutex);
  end.operations[request] = {nullptr, data, true};
  Channel &line = end.links->channels[{from, end.rank, channel}];
  line.receives.push_back(&end.operations[request]);
  meet(line);
  return 0;
}

int test(void *user, uint32_t request, bool *done) {
  End &end = *static_cast<End *>(user);
  Operation &operation = end.operations[request];
  std::shared_ptr<Message> message;
  {
    std::lock_guard lock(end.links->mutex);
    message = operation.message;
  }
  *done =
      message && Clock::now() >= (operation.isReceive ? message->arrives : message->left);
  if (*done && operation.isReceive && !message->bytes.empty())
    std::memcpy(operation.into, message->bytes.data(), message->bytes.size());
  return 0;
}

void cancel(void *user, uint32_t request) {
  End &end = *static_cast<End *>(user);
  std::lock_guard lock(end.links->mutex);
  for (auto &[key, channel] : end.links->channels)
    std::erase(channel.receives, &end.operations[request]);
}

} // namespace

extern "C" __attribute__((visibility("default"))) void *
shaped_links(int ranks, double latencyUs, double bytesPerSecond) {
  auto *links = new Links;
  links->latencyUs = latencyUs;
  links->bytesPerUs = bytesPerSecond / 1e6;
  for (int rank = 0; rank < ranks; ++rank)
    links->ends.push_back(
        {links, rank, std::vector<Operation>(SLUICE_TRANSPORT_REQUESTS(ranks))});
  return links;
}

extern "C" __attribute__((visibility("default"))) void
shaped_transport(void *of, int rank, sluice_transport *transport) {
  auto *links = static_cast<Links *>(of);
  *transport = {.user = &links->ends[static_cast<size_t>(rank)],
                .rank = rank,
                .size = static_cast<int>(links->ends.size()),
                .post_send = postSend,
                .post_receive = postReceive,
                .test = test,
                .cancel = cancel,
                .error_text = nullptr};
}
