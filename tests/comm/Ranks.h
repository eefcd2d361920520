#pragma once
// Runs one function on every rank of a group, each on a thread of its own, and the sums
// to expect: a plain binomial tree, written as the rule in docs/numerics.md.

#include "runtime/comm/LocalGroup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define EXPECT_OK(call)                                                                  \
  do {                                                                                   \
    ::sluice::Status expectOkStatus = call;                                              \
    EXPECT_TRUE(expectOkStatus.ok()) << expectOkStatus.message;                          \
  } while (false)

namespace sluice::test {

using RankBody = std::function<void(Communicator &)>;

inline std::vector<std::unique_ptr<Communicator>>
joinAll(int ranks, const CommOptions &options = {}) {
  auto group = LocalGroup::create(ranks, options);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int r = 0; r < ranks; ++r)
    ends.push_back(std::move(*(*group)->join(r)));
  return ends;
}

/// All ends stay until every body has returned, and then leave together.
inline void onEachThenLeave(std::vector<std::unique_ptr<Communicator>> ends,
                            const RankBody &body) {
  std::barrier<> bodies(static_cast<std::ptrdiff_t>(ends.size()));
  std::vector<std::thread> threads;
  for (auto &end : ends)
    threads.emplace_back([&] {
      body(*end);
      bodies.arrive_and_wait();
      end.reset();
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// All ends stay.
inline void onEach(std::vector<std::unique_ptr<Communicator>> &ends,
                   const RankBody &body) {
  std::vector<std::thread> threads;
  for (auto &end : ends)
    threads.emplace_back([&body, &end] { body(*end); });
  for (std::thread &thread : threads)
    thread.join();
}

inline void onRanks(int ranks, const RankBody &body) {
  onEachThenLeave(joinAll(ranks), body);
}

/// Values of both signs and many magnitudes, whose sums round differently in every order.
template <class T> std::vector<T> valuesOf(int rank, size_t count) {
  uint64_t state = static_cast<uint64_t>(rank) * 7919 + count;
  std::vector<T> values(count);
  for (T &value : values) {
    // splitmix64
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(x);
    else
      value = static_cast<T>(static_cast<int64_t>(x)) /
              static_cast<T>(uint64_t(1) << (x & 31));
  }
  return values;
}

/// Rounds s = 0, 1, ...: rank r, a multiple of 2^(s+1), adds the sum of r + 2^s.
template <class T>
std::vector<T> treeSum(const std::function<std::vector<T>(int)> &of, int ranks) {
  std::vector<std::vector<T>> sums;
  for (int r = 0; r < ranks; ++r)
    sums.push_back(of(r));
  for (int step = 1; step < ranks; step *= 2)
    for (int r = 0; r + step < ranks; r += 2 * step)
      for (size_t i = 0; i < sums[r].size(); ++i)
        sums[r][i] = static_cast<T>(sums[r][i] + sums[r + step][i]);
  return sums[0];
}

/// Among those that did not arrive; on a busy machine others may be late as well.
inline void expectNamed(const Status &status, int rank, int size) {
  const std::string number = " " + std::to_string(rank);
  std::string list = status.message.substr(0, status.message.find(" of "));
  EXPECT_TRUE(status.message.starts_with("rank") &&
              (list.ends_with(number) || list.find(number + ",") != list.npos ||
               list.find(number + " ") != list.npos))
      << status.message;
  EXPECT_NE(status.message.find("of " + std::to_string(size) + " did not arrive at "),
            std::string::npos)
      << status.message;
}

/// Shards of growing length behind an unused element; that of rank 1 is empty.
inline std::vector<ElementRange> unevenShards(uint64_t count, int ranks) {
  std::vector<ElementRange> shards;
  uint64_t at = count > 0;
  for (uint64_t r = 0; r < static_cast<uint64_t>(ranks); ++r) {
    uint64_t end = r == 1 ? at : 1 + (count - (count > 0)) * (r + 1) / (ranks + 1);
    end = std::max(at, std::min(end, count));
    shards.push_back({at, end});
    at = end;
  }
  return shards;
}

/// A message cut into growing parts, the first ones empty.
template <class T> std::vector<Part> cut(std::vector<T> &values, size_t parts) {
  std::vector<Part> list;
  size_t at = 0;
  for (size_t p = 0; p < parts; ++p) {
    size_t end = p + 1 == parts ? values.size() : values.size() * p * p / (parts * parts);
    list.push_back({values.data() + at, (end - at) * sizeof(T)});
    at = end;
  }
  return list;
}

} // namespace sluice::test
