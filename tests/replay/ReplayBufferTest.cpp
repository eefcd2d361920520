// What a replay buffer keeps and draws: exact quotas, uniform reservoirs, states that
// come back bit for bit.

#include "runtime/replay/ReplayBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace sluice {
namespace {

/// Samples are their number and a byte of their class.
ReplayBuffer make(ReplayPolicy policy, int64_t capacity, uint64_t seed = 1) {
  ReplayOptions options;
  options.policy = policy;
  options.seed = seed;
  options.capacityBytes = static_cast<uint64_t>(capacity) * (8 + 1 + 32);
  auto buffer = ReplayBuffer::create({{"x", 8}, {"labels", 1}}, options);
  EXPECT_TRUE(buffer);
  EXPECT_EQ(buffer->capacity(), capacity);
  return std::move(*buffer);
}

int64_t offer(ReplayBuffer &buffer, int64_t number, int64_t label, int64_t task = 0) {
  auto byte = static_cast<uint8_t>(label);
  const void *sample[] = {&number, &byte};
  return buffer.offer(sample, label, task);
}

int64_t numberAt(const ReplayBuffer &buffer, int64_t index) {
  int64_t number;
  std::memcpy(&number, buffer.field(index, 0), sizeof number);
  return number;
}

std::vector<ReplayDraw> draw(const ReplayBuffer &buffer, int64_t count, uint64_t key) {
  auto draws = buffer.draw(count, key);
  EXPECT_TRUE(draws);
  return draws ? *draws : std::vector<ReplayDraw>();
}

TEST(ReplayBuffer, RingKeepsTheLatest) {
  ReplayBuffer buffer = make(ReplayPolicy::ring, 10);
  for (int64_t i = 0; i < 37; ++i)
    EXPECT_EQ(offer(buffer, i, i % 3), i % 10);
  std::set<int64_t> kept;
  for (int64_t i = 0; i < buffer.size(); ++i) {
    kept.insert(numberAt(buffer, i));
    EXPECT_EQ(*buffer.field(i, 1), numberAt(buffer, i) % 3);
    EXPECT_EQ(buffer.label(i), numberAt(buffer, i) % 3);
  }
  EXPECT_EQ(kept.size(), 10u);
  EXPECT_EQ(*kept.begin(), 27);
}

/// Chi-square of how often each of `items` was kept: mean items - 1, and normal with
/// variance 2 (items - 1) for so many of them.
TEST(ReplayBuffer, ReservoirIsUniform) {
  constexpr int64_t items = 100, capacity = 10, runs = 4000;
  std::vector<double> kept(items, 0);
  for (int64_t run = 0; run < runs; ++run) {
    ReplayBuffer buffer =
        make(ReplayPolicy::reservoir, capacity, static_cast<uint64_t>(run));
    for (int64_t i = 0; i < items; ++i)
      offer(buffer, i, 0);
    for (int64_t i = 0; i < buffer.size(); ++i)
      ++kept[static_cast<size_t>(numberAt(buffer, i))];
  }
  double expected = double(runs) * capacity / items, sum = 0;
  for (double count : kept)
    sum += (count - expected) * (count - expected) / expected;
  // kept items of a run exclude each other, which takes the variance down by this factor
  sum /= 1 - double(capacity) / items;
  EXPECT_LT(std::abs(sum - (items - 1)), 4 * std::sqrt(2.0 * (items - 1)));
}

TEST(ReplayBuffer, DrawsAreUniformOverWhatIsKept) {
  ReplayBuffer buffer = make(ReplayPolicy::reservoir, 50);
  for (int64_t i = 0; i < 50; ++i)
    offer(buffer, i, 0);
  std::vector<double> drawn(50, 0);
  for (uint64_t key = 0; key < 500; ++key)
    for (ReplayDraw draw : draw(buffer, 20, key)) {
      ++drawn[static_cast<size_t>(draw.index)];
      EXPECT_EQ(draw.weight, 1);
    }
  double expected = 500 * 20 / 50.0, sum = 0;
  for (double count : drawn)
    sum += (count - expected) * (count - expected) / expected;
  EXPECT_LT(std::abs(sum - 49), 4 * std::sqrt(2.0 * 49));
}

/// 5% positives and a buffer of 200: half and half, against the share of the data.
TEST(ReplayBuffer, BalancedKeepsRareClasses) {
  ReplayBuffer balanced = make(ReplayPolicy::balanced, 200),
               reservoir = make(ReplayPolicy::reservoir, 200);
  for (int64_t i = 0; i < 20000; ++i)
    for (ReplayBuffer *buffer : {&balanced, &reservoir})
      offer(*buffer, i, i % 20 == 7);
  EXPECT_EQ(balanced.classCounts(), (std::map<int64_t, int64_t>{{0, 100}, {1, 100}}));
  EXPECT_NEAR(static_cast<double>(reservoir.classCounts()[1]), 10, 12);
  auto draws = balanced.draw(200, 3);
  ASSERT_TRUE(draws);
  int64_t positives = 0;
  std::set<int64_t> different;
  for (ReplayDraw draw : *draws) {
    positives += balanced.label(draw.index);
    different.insert(draw.index);
  }
  EXPECT_EQ(positives, 100);
  EXPECT_EQ(different.size(), 200u); // none twice before all were drawn
}

TEST(ReplayBuffer, AClassKeepsItsLeast) {
  ReplayBuffer buffer = make(ReplayPolicy::prioritized, 500);
  for (int64_t label = 0; label < 8; ++label) // classes one after the other
    for (int64_t i = 0; i < 2000; ++i)
      offer(buffer, i, label, label);
  int64_t sum = 0;
  for (auto [label, count] : buffer.classCounts()) {
    EXPECT_GE(count, 50) << label;
    sum += count;
  }
  EXPECT_EQ(sum, 500);
}

TEST(ReplayBuffer, WhatWasForgottenIsDrawnMore) {
  ReplayBuffer buffer = make(ReplayPolicy::prioritized, 300);
  for (int64_t i = 0; i < 300; ++i)
    offer(buffer, i, i % 3, i % 3);
  buffer.setForgetting(0, 0.9, 0.7, 2);  // 0.1 an epoch
  buffer.setForgetting(1, 0.9, 0.85, 2); // 0.025
  buffer.setForgetting(2, 0.8, 0.9, 2);  // better than ever: the floor
  double powers[3];
  for (auto [at, lost] : {std::pair(0, 0.1), std::pair(1, 0.025), std::pair(2, 1e-3)})
    powers[at] = std::pow(lost, 0.7);
  double all = powers[0] + powers[1] + powers[2];
  std::vector<double> drawn(3, 0);
  constexpr int64_t rounds = 400, each = 64;
  for (uint64_t key = 0; key < rounds; ++key)
    for (ReplayDraw draw : draw(buffer, each, key)) {
      int64_t task = buffer.task(draw.index);
      ++drawn[static_cast<size_t>(task)];
      // (N p)^-0.5 over that of the rarest
      EXPECT_NEAR(draw.weight, std::sqrt(powers[2] / powers[task]), 1e-6);
    }
  for (size_t task = 0; task < 3; ++task) {
    double share = powers[task] / all,
           sigma = std::sqrt(share * (1 - share) / rounds / each);
    EXPECT_NEAR(drawn[task] / rounds / each, share, 4 * sigma);
  }
}

TEST(ReplayBuffer, AStateContinuesBitForBit) {
  for (ReplayPolicy policy : {ReplayPolicy::ring, ReplayPolicy::reservoir,
                              ReplayPolicy::balanced, ReplayPolicy::prioritized}) {
    ReplayBuffer whole = make(policy, 40);
    for (int64_t i = 0; i < 100; ++i)
      offer(whole, i, i * i % 7, i % 2);
    whole.setForgetting(1, 0.9, 0.2, 1);
    ReplayBuffer resumed = make(policy, 40, /*seed=*/9);
    ASSERT_TRUE(resumed.restore(whole.state()).ok());
    for (int64_t i = 100; i < 200; ++i)
      EXPECT_EQ(offer(whole, i, i % 5, 3), offer(resumed, i, i % 5, 3));
    EXPECT_EQ(whole.state(), resumed.state());
    auto one = whole.draw(30, 77), two = resumed.draw(30, 77);
    for (size_t i = 0; i < 30; ++i)
      EXPECT_EQ((*one)[i].index, (*two)[i].index);
  }
}

TEST(ReplayBuffer, DamagedStatesAreRefusedAndChangeNothing) {
  ReplayBuffer buffer = make(ReplayPolicy::balanced, 20);
  for (int64_t i = 0; i < 30; ++i)
    offer(buffer, i, i % 3);
  std::vector<uint8_t> good = buffer.state();
  for (size_t length = 0; length < good.size(); ++length) {
    auto part = std::span(good).first(length);
    EXPECT_FALSE(buffer.restore(part).ok()) << length;
  }
  for (size_t at = 0; at < good.size() - 20 * 9;
       at += 8) { // the words before the samples
    std::vector<uint8_t> bad = good;
    bad[at + 7] ^= 0x80;
    Status status = buffer.restore(bad);
    if (status.ok()) { // words that may be anything, such as a seed
      ASSERT_TRUE(buffer.restore(good).ok());
      continue;
    }
    EXPECT_EQ(buffer.state(), good) << at;
  }
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(buffer.restore(longer).ok());
}

TEST(ReplayBuffer, SaysWhatIsWrong) {
  ReplayOptions options;
  options.capacityBytes = 40;
  EXPECT_EQ(ReplayBuffer::create({{"x", 100}}, options).status().message,
            "replay: a sample needs 132 bytes, the buffer has 40; give it that many at "
            "least");
  EXPECT_FALSE(parseReplayPolicy("lifo"));
  ReplayBuffer buffer = make(ReplayPolicy::ring, 4);
  EXPECT_EQ(buffer.draw(1, 0).status().message,
            "the replay buffer is empty; show it samples before drawing");
  offer(buffer, 1, 0);
  EXPECT_EQ(buffer.drawClass(1, 0, 5).status().message,
            "the replay buffer has no sample of class 5");
  options.capacityBytes = 4 * 41;
  auto other = ReplayBuffer::create({{"y", 8}, {"labels", 1}}, options);
  options.policy = ReplayPolicy::ring;
  other = ReplayBuffer::create({{"y", 8}, {"labels", 1}}, options);
  EXPECT_EQ(
      other->restore(buffer.state()).message,
      "the replay buffer was saved with input 'x' of 8 bytes a sample, expected 'y' "
      "of 8");
}

} // namespace
} // namespace sluice
