// Rungs of the memory ladder: what changes between two steps, and what does not.

#include "tests/runtime/TestPlan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace sluice::test {
namespace {

/// Gives memory up to a number of bytes in all, and knows what it has given.
struct Allocator {
  uint64_t most = UINT64_MAX, given = 0;
  std::map<void *, size_t> blocks;

  AllocatorHooks hooks() {
    return {[](size_t bytes, size_t alignment, void *user) -> void * {
              auto &self = *static_cast<Allocator *>(user);
              if (self.given + bytes > self.most)
                return nullptr;
              void *memory = std::aligned_alloc(alignment, (bytes + alignment - 1) /
                                                               alignment * alignment);
              self.given += bytes;
              self.blocks[memory] = bytes;
              return memory;
            },
            [](void *memory, size_t bytes, void *user) {
              auto &self = *static_cast<Allocator *>(user);
              EXPECT_EQ(self.blocks.at(memory), bytes);
              self.blocks.erase(memory);
              self.given -= bytes;
              std::free(memory);
            },
            this};
  }
};

const std::vector<float> few = {0, 1, 2, 3}, other = {1, 1, 0, 5};

StepResult step(Session &session, const std::vector<float> &values) {
  StepResult result;
  Status status = session.step(batchOf(values, session.samples()), result);
  EXPECT_TRUE(status.ok()) << status.message;
  return result;
}

} // namespace

TEST(Ladder, TheStateIsTheSameAndTheStepSmaller) {
  PlanPtr plan = ladderPlan().read();
  EXPECT_EQ(plan->rungs(), 2u);
  EXPECT_EQ(plan->buckets(), 1u);
  EXPECT_EQ(plan->memory(0).stateBytes, plan->memory(1).stateBytes);
  EXPECT_EQ(plan->memory(0).stepBytes, plan->memory().stepBytes);
  EXPECT_EQ(plan->memory(0).stepBytes, plan->memory(1).stepBytes + 4096);
  EXPECT_EQ(plan->variant(0, 1).memoryFraction, 0.5);
}

TEST(Ladder, ASwitchAtAnyStepKeepsTheBits) {
  for (int64_t accumulate : {1, 3}) {
    for (int at = 0; at < 7; ++at) {
      auto session = makeSession(ladderPlan(accumulate).read());
      auto plain = makeSession(ladderPlan(accumulate).read());
      for (int i = 0; i < 7; ++i) {
        if (i == at)
          ASSERT_TRUE(session->useVariant(1).ok());
        if (i == at + 2)
          ASSERT_TRUE(session->useVariant(0).ok());
        const std::vector<float> &values = i % 2 ? other : few;
        EXPECT_EQ(step(*session, values).lossSum, step(*plain, values).lossSum);
      }
      EXPECT_EQ(scalarState(*session, "param/w"), scalarState(*plain, "param/w"));
      EXPECT_EQ(session->samples(), plain->samples());
    }
  }
}

TEST(Ladder, OnlyTheStepReservationIsMadeAnew) {
  PlanPtr plan = ladderPlan().read();
  Allocator allocator;
  SessionOptions options;
  options.allocator = allocator.hooks();
  auto session = makeSession(plan, options);
  uint64_t state = plan->memory().stateBytes;
  EXPECT_EQ(allocator.given, state + plan->memory(0).stepBytes);
  const uint8_t *weight = session->state("param/w").data();
  ASSERT_TRUE(session->useVariant(1).ok());
  EXPECT_EQ(session->variant(), 1u);
  EXPECT_EQ(session->state("param/w").data(), weight);
  EXPECT_EQ(allocator.given, state + plan->memory(1).stepBytes);
}

TEST(Ladder, WhenItsMemoryCannotBeHadTheOldOneStays) {
  PlanPtr plan = ladderPlan().read();
  Allocator allocator;
  SessionOptions options;
  options.allocator = allocator.hooks();
  options.variant = 1;
  auto session = makeSession(plan, options);
  auto plain = makeSession(plan);
  EXPECT_EQ(session->variant(), 1u);
  step(*session, few), step(*plain, few);
  allocator.most = allocator.given;
  Status status = session->useVariant(0);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message.find("variant 0: "), std::string::npos) << status.message;
  EXPECT_NE(status.message.find("variant 1 stays in use"), std::string::npos)
      << status.message;
  EXPECT_EQ(session->variant(), 1u);
  EXPECT_EQ(step(*session, other).lossSum, step(*plain, other).lossSum);
  EXPECT_EQ(scalarState(*session, "param/w"), scalarState(*plain, "param/w"));
  allocator.most = UINT64_MAX;
  EXPECT_TRUE(session->useVariant(0).ok());
}

TEST(Ladder, MemoryOfTheCallerMustBeLargeEnough) {
  PlanPtr plan = ladderPlan().read();
  SessionOptions options;
  options.variant = 1;
  uint64_t bytes = plan->memory(1).stepBytes;
  std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
  options.step = {memory.get(), bytes};
  auto session = makeSession(plan, options);
  EXPECT_FALSE(session->useVariant(0).ok());
  EXPECT_EQ(session->variant(), 1u);
  EXPECT_TRUE(session->useVariant(1).ok());
  step(*session, few);
}

TEST(Ladder, OutputsOfTheOldVariantAreGone) {
  auto session = makeSession(ladderPlan().read());
  ASSERT_TRUE(session->infer(batchOf(few)).ok());
  EXPECT_TRUE(session->output("y").ok());
  ASSERT_TRUE(session->useVariant(1).ok());
  EXPECT_FALSE(session->output("y").ok());
}

TEST(Ladder, AVariantThatIsNotThereIsRefused) {
  auto session = makeSession(ladderPlan().read());
  EXPECT_EQ(session->useVariant(2).message,
            "variant 2 is asked for, the plan has 2, counted from 0");
  SessionOptions options;
  options.variant = 2;
  options.resolver = testKernel;
  auto refused = Session::create(ladderPlan().read(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message,
            "variant 2 is asked for, the plan has 2, counted from 0");
  auto plain = makeSession(scalarPlan(4, 1, 0.25).read());
  EXPECT_NE(plain->useVariant(1).message.find("compile with 'memory.ladder'"),
            std::string::npos);
}

} // namespace sluice::test
