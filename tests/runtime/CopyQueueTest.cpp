// Plans with tensors in the host's memory: copies beside the launches, and both arenas.

#include "TestPlan.h"

#include <gtest/gtest.h>

#include <cstring>

namespace sluice::test {

TEST(CopyQueue, TrainsAsWithoutTheHost) {
  auto plain = makeSession(adamPlan(0.1).read());
  for (int threads : {1, 2}) {
    auto moved = makeSession(hostAdamPlan(threads).read());
    ASSERT_TRUE(moved);
    for (int i = 0; i < 50; ++i) {
      StepResult a, b;
      ASSERT_TRUE(plain->step(batchOf({1}), a).ok());
      ASSERT_TRUE(moved->step(batchOf({1}), b).ok());
    }
    for (const char *name : {"param/w", "opt/w/m", "opt/w/v"})
      EXPECT_EQ(scalarState(*plain, name), scalarState(*moved, name)) << name;
    EXPECT_NE(scalarState(*moved, "opt/w/m"), 0);
    plain = makeSession(adamPlan(0.1).read());
  }
}

TEST(CopyQueue, BothArenasMayBeTheCallers) {
  TestPlan p = hostAdamPlan();
  PlanPtr plan = p.read();
  ASSERT_TRUE(plan);
  PlanMemory memory = plan->memory();
  EXPECT_EQ(memory.hostStateBytes, 128u);
  EXPECT_EQ(memory.hostStepBytes, 0u);
  alignas(64) uint8_t host[192];
  std::memset(host, 0x5a, sizeof host);
  SessionOptions options;
  options.hostState = {host, 128};
  auto session = makeSession(plan, options);
  ASSERT_TRUE(session);
  StepResult result;
  ASSERT_TRUE(session->step(batchOf({1}), result).ok());
  float moment = 0;
  std::memcpy(&moment, host, sizeof moment);
  EXPECT_EQ(moment, scalarState(*session, "opt/w/m"));
  for (size_t i = 128; i < sizeof host; ++i)
    EXPECT_EQ(host[i], 0x5a) << i;
}

TEST(CopyQueue, AHostArenaThatCannotBeHadIsRefusedBeforeTheStep) {
  PlanPtr plan = hostAdamPlan().read();
  SessionOptions options;
  options.resolver = testKernel;
  alignas(64) static uint8_t memory[4096];
  static int given;
  given = 0;
  options.allocator.allocate = [](size_t, size_t, void *) -> void * {
    return given++ < 2 ? memory + 1024 * given : nullptr;
  };
  options.allocator.release = [](void *, size_t, void *) {};
  auto refused = Session::create(plan, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code, StatusCode::doesNotFit);
  EXPECT_NE(refused.status().message.find("host state reservation"), std::string::npos)
      << refused.status().message;

  options = {};
  options.resolver = testKernel;
  alignas(64) static uint8_t small[64];
  options.hostState = {small, sizeof small};
  refused = Session::create(plan, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message.find("has 64 bytes, the plan needs 128"),
            std::string::npos)
      << refused.status().message;
}

TEST(CopyQueue, AHostArenaBeyondTheMachineIsRefused) {
  TestPlan p = hostAdamPlan();
  p.plan.host_step_bytes = uint64_t(1) << 45;
  SessionOptions options;
  options.resolver = testKernel;
  auto refused = Session::create(p.read(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code, StatusCode::doesNotFit);
  EXPECT_NE(refused.status().message.find("host step reservation"), std::string::npos);
}

TEST(CopyQueue, TraceShowsCopies) {
  SessionOptions options;
  options.traceEvents = 16;
  auto session = makeSession(hostAdamPlan().read(), options);
  StepResult result;
  ASSERT_TRUE(session->step(batchOf({1}), result).ok());
  std::string text = traceJson(*session->trace(), session->plan());
  EXPECT_NE(text.find("\"copies\""), std::string::npos);
  EXPECT_NE(text.find("to host: moment"), std::string::npos);
  EXPECT_NE(text.find("to device: moment"), std::string::npos);
}

/// Why the reader refuses a plan; empty if it does not.
static std::string refusal(const TestPlan &p) {
  auto plan = PlanReader::readMemory(p.file(), "p.plan");
  return plan.ok() ? "" : plan.status().message;
}

TEST(CopyQueue, PlansThatWouldHangOrLeaveTheirArenasAreRefused) {
  auto refused = [](auto change, const char *expected) {
    TestPlan p = hostAdamPlan();
    change(*p.plan.programs[0]);
    EXPECT_NE(refusal(p).find(expected), std::string::npos) << refusal(p);
  };
  EXPECT_EQ(refusal(hostAdamPlan()), "");
  refused([](auto &step) { step.launches[0]->wait_copies = 3; },
          "launch 0 waits for a copy that never ends");
  refused([](auto &step) { step.launches[0]->signal = false; },
          "copy 2 waits for a launch that never signals");
  refused([](auto &step) { step.copies[0]->wait_launches = 9; }, "waits for");
  refused([](auto &step) { step.copies[0]->from_offset = 127; },
          "copy 0 lies outside its reservation");
  refused([](auto &step) { step.copies[1]->size = uint64_t(1) << 60; },
          "copy 1 lies outside its reservation");
  refused([](auto &step) { step.copies[0]->from_space = fbs::Space::state; },
          "copy 0 does not go from one memory to the other");
  refused([](auto &step) { step.host_bytes = 64; }, "host step reservation of 0");
}

} // namespace sluice::test
