// Law 1, from outside: the runtime reserves twice, touches nothing beyond, and steps
// allocate nothing.

#include "TestPlan.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <malloc.h>
#include <new>
#include <unistd.h>

static std::atomic<int64_t> allocations{0};

void *operator new(size_t bytes) {
  ++allocations;
  if (void *memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
void *operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  size_t align = static_cast<size_t>(alignment);
  if (void *memory = std::aligned_alloc(align, (bytes + align - 1) / align * align))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace sluice::test {

/// Bytes, without pages of files: those come with the code that happens to be called. The
/// walk behind smaps_rollup is exact; the counters of statm lag where there are many
/// cores.
static int64_t anonymousBytes() {
  int64_t kibibytes = -1;
  char line[256];
  FILE *file = std::fopen("/proc/self/smaps_rollup", "r");
  while (file && std::fgets(line, sizeof line, file))
    if (std::strncmp(line, "Anonymous:", 10) == 0)
      kibibytes = std::strtoll(line + 10, nullptr, 10);
  if (file)
    std::fclose(file);
  EXPECT_GE(kibibytes, 0) << "cannot read the resident size";
  return kibibytes * 1024;
}

TEST(Memory, StepsAllocateNothing) {
  for (int64_t accumulate : {1, 4}) {
    TestPlan p = scalarPlan(8, accumulate, 0.01);
    p.plan.threads = 2;
    SessionOptions options;
    options.traceEvents = 16;
    auto session = makeSession(p.read(), options);
    std::vector<float> targets(8, 1);
    Batch batch = batchOf(targets);
    StepResult result;
    int64_t before = allocations;
    size_t heapBefore = mallinfo2().uordblks;
    for (int i = 0; i < 50; ++i) {
      batch.firstSample = session->samples();
      ASSERT_TRUE(session->step(batch, result).ok());
      ASSERT_TRUE(session->eval(batch, result).ok());
      ASSERT_TRUE(session->infer(batch).ok());
    }
    ASSERT_TRUE(session->flush(result).ok());
    EXPECT_EQ(allocations - before, 0) << "accumulate " << accumulate;
    EXPECT_EQ(mallinfo2().uordblks, heapBefore);
  }
}

// Case M7: 10,000 steps, the loss read each time: resident size flat.
TEST(Memory, ResidentSizeIsFlat) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the address sanitizer keeps freed memory";
#endif
#endif
  auto session = makeSession(scalarPlan(8, 1, 0.01).read());
  std::vector<float> targets(8, 1);
  Batch batch = batchOf(targets);
  StepResult result;
  double sum = 0;
  auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      batch.firstSample = session->samples();
      ASSERT_TRUE(session->step(batch, result).ok());
      sum += result.loss();
    }
  };
  run(1000);
  anonymousBytes(); // its own buffers
  int64_t before = anonymousBytes();
  run(10000);
  EXPECT_LE(anonymousBytes() - before, 16 << 10) << "resident memory grew";
  EXPECT_GT(sum, 0.0);
}

TEST(Memory, PatternShowsTheHighestByteTouched) {
  TestPlan p = scalarPlan(3, 1, 0.25, 2);
  PlanPtr plan = p.read();
  // y of infer is the last thing in the reservation
  SessionOptions options;
  options.stepPattern = 0xa5;
  auto session = makeSession(plan, options);
  EXPECT_EQ(session->stepBytesTouched(), 0u);
  ASSERT_TRUE(session->infer(batchOf({1, 2, 3})).ok());
  EXPECT_EQ(session->stepBytesTouched(), 64u + 3 * 4);
}

TEST(Memory, BytesTouchedAreThoseOfAllPrograms) {
  // A window ends with `update`, which touches nothing of the step reservation.
  SessionOptions options;
  options.stepPattern = 0xa5;
  auto session = makeSession(scalarPlan(3, 2, 0.25, 2).read(), options);
  StepResult result;
  std::vector<float> targets = {1, 2, 3};
  Batch batch = batchOf(targets);
  ASSERT_TRUE(session->step(batch, result).ok());
  uint64_t micro = session->stepBytesTouched();
  EXPECT_GE(micro, 3u * 4);
  batch.firstSample = session->samples();
  ASSERT_TRUE(session->step(batch, result).ok());
  EXPECT_EQ(session->updates(), 1);
  EXPECT_EQ(session->stepBytesTouched(), micro);
}

TEST(Memory, ResultsDoNotDependOnWhatTheReservationHeld) {
  float seen[2];
  for (int i = 0; i < 2; ++i) {
    SessionOptions options;
    options.stepPattern = i == 0 ? 0x00 : 0xff;
    auto session = makeSession(scalarPlan(3, 2, 0.25, 2).read(), options);
    StepResult result;
    for (int s = 0; s < 4; ++s)
      ASSERT_TRUE(session->step(batchOf({1, 2}), result).ok());
    seen[i] = scalarState(*session, "param/w");
  }
  EXPECT_EQ(seen[0], seen[1]);
}

struct Counted {
  int allocations = 0, releases = 0;
  size_t bytes = 0;
};

TEST(Memory, AllocatorHooksServeBothReservations) {
  Counted counted;
  PlanPtr plan = scalarPlan(3, 1, 0.25, 2).read();
  SessionOptions options;
  options.allocator.user = &counted;
  options.allocator.allocate = [](size_t bytes, size_t alignment, void *user) {
    auto &count = *static_cast<Counted *>(user);
    ++count.allocations;
    count.bytes += bytes;
    void *memory = std::aligned_alloc(alignment, (bytes + 63) / 64 * 64);
    std::memset(memory, 0xcd, bytes);
    return memory;
  };
  options.allocator.release = [](void *memory, size_t, void *user) {
    ++static_cast<Counted *>(user)->releases;
    std::free(memory);
  };
  auto session = makeSession(plan, options);
  EXPECT_EQ(counted.allocations, 2);
  EXPECT_EQ(counted.bytes, plan->memory().stateBytes + plan->memory().stepBytes);
  EXPECT_EQ(scalarState(*session, "param/w"), 2.0f);
  int64_t step = -1;
  ASSERT_TRUE(session->readState("step", &step, 8).ok());
  EXPECT_EQ(step, 0); // dirty memory is set to the initial state
  session.reset();
  EXPECT_EQ(counted.releases, 2);

  options.resolver = testKernel;
  options.allocator.allocate = [](size_t, size_t, void *) -> void * { return nullptr; };
  EXPECT_EQ(Session::create(plan, options).status().code, StatusCode::doesNotFit);
}

} // namespace sluice::test
