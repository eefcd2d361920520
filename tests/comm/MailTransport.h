#pragma once
// A transport between threads of one process: every operation is looked for in a list
// under one lock. Slow and plain, for tests of what is built on transports.

#include "runtime/comm/MessageCommunicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace sluice::test {

class Mail {
public:
  /// `buffered`: sends are done at once; else when they are received.
  explicit Mail(int ranks, bool buffered = false) : buffered(buffered) {
    for (int r = 0; r < ranks; ++r)
      ends.push_back(
          {this, r, std::vector<Operation>(SLUICE_TRANSPORT_REQUESTS(ranks)), 0});
  }

  sluice_transport end(int rank) {
    return {.user = &ends[rank],
            .rank = rank,
            .size = static_cast<int>(ends.size()),
            .post_send = postSend,
            .post_receive = postReceive,
            .test = test,
            .cancel = cancel,
            .error_text = [](void *, int) { return "the mail is on strike"; }};
  }
  std::unique_ptr<Communicator> communicator(int rank, const CommOptions &options = {}) {
    return std::move(*overTransport(end(rank), {.comm = options,
                                                .kind = CommKind::custom,
                                                .close = {},
                                                .closeTogether = false}));
  }
  /// The operations of a rank fail from now on.
  void strike(int rank) {
    std::lock_guard lock(mutex);
    ends[rank].error = 7;
  }

private:
  struct Operation {
    std::shared_ptr<bool> done; ///< null when none is under way
    uint32_t looks = 0;
  };
  struct End {
    Mail *mail;
    int rank;
    std::vector<Operation> requests;
    int error;
  };
  struct Waiting {
    uint8_t *data;
    size_t bytes;
    std::shared_ptr<bool> done;
    std::vector<uint8_t> copy;
  };
  struct Line {
    std::deque<Waiting> sends, receives;
  };

  void match(Line &line) {
    while (!line.sends.empty() && !line.receives.empty()) {
      Waiting &from = line.sends.front(), &to = line.receives.front();
      ASSERT_LE(from.bytes, to.bytes);
      if (from.bytes)
        std::memcpy(to.data, from.copy.empty() ? from.data : from.copy.data(),
                    from.bytes);
      *from.done = *to.done = true;
      line.sends.pop_front();
      line.receives.pop_front();
    }
  }
  static int postSend(void *user, uint32_t request, const void *data, size_t bytes,
                      int to, int channel) {
    End &end = *static_cast<End *>(user);
    Mail &mail = *end.mail;
    std::lock_guard lock(mail.mutex);
    if (end.error)
      return end.error;
    auto done = begin(end, request);
    const uint8_t *from = static_cast<const uint8_t *>(data);
    Waiting send{const_cast<uint8_t *>(from), bytes, done, {}};
    if (mail.buffered) {
      send.copy.assign(from, from + bytes);
      send.done = std::make_shared<bool>();
      *done = true;
    }
    Line &line = mail.lines[{end.rank, to, channel}];
    line.sends.push_back(std::move(send));
    mail.match(line);
    return 0;
  }
  static int postReceive(void *user, uint32_t request, void *data, size_t room, int from,
                         int channel) {
    End &end = *static_cast<End *>(user);
    std::lock_guard lock(end.mail->mutex);
    if (end.error)
      return end.error;
    Line &line = end.mail->lines[{from, end.rank, channel}];
    line.receives.push_back(
        {static_cast<uint8_t *>(data), room, begin(end, request), {}});
    end.mail->match(line);
    return 0;
  }
  /// Every other look finds nothing, so that operations end in odd orders.
  static int test(void *user, uint32_t request, bool *done) {
    End &end = *static_cast<End *>(user);
    std::lock_guard lock(end.mail->mutex);
    Operation &operation = end.requests[request];
    EXPECT_TRUE(operation.done) << "request " << request << " has not begun";
    *done = *operation.done && (++operation.looks + request) % 2;
    if (*done)
      operation.done.reset();
    return end.error;
  }
  static void cancel(void *user, uint32_t request) {
    End &end = *static_cast<End *>(user);
    std::lock_guard lock(end.mail->mutex);
    for (auto &[key, line] : end.mail->lines)
      for (auto *list : {&line.sends, &line.receives})
        std::erase_if(*list, [&](const Waiting &waiting) {
          return waiting.done == end.requests[request].done;
        });
    end.requests[request].done.reset();
  }
  static std::shared_ptr<bool> begin(End &end, uint32_t request) {
    Operation &operation = end.requests.at(request);
    EXPECT_FALSE(operation.done) << "request " << request << " is used twice";
    operation.done = std::make_shared<bool>(false);
    return operation.done;
  }

  bool buffered;
  std::mutex mutex;
  std::deque<End> ends;
  std::map<std::tuple<int, int, int>, Line> lines;
};

} // namespace sluice::test
