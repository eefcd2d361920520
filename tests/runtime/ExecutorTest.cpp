#include "TestPlan.h"

#include "runtime/FloatMode.h"
#include "test_kernels.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>

namespace sluice::test {

TEST(ThreadTeam, RunsEveryWorkerOnce) {
  for (int threads : {1, 2, 3, 8}) {
    auto team = ThreadTeam::create(threads);
    ASSERT_TRUE(team.ok());
    std::atomic<uint32_t> seen[8] = {};
    for (int round = 0; round < 200; ++round)
      (*team)->run(
          [](void *context, int worker) {
            static_cast<std::atomic<uint32_t> *>(context)[worker]++;
          },
          seen);
    for (int worker = 0; worker < 8; ++worker)
      EXPECT_EQ(seen[worker], worker < threads ? 200u : 0u);
  }
}

struct BarrierCheck {
  ThreadTeam *team;
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
};

TEST(ThreadTeam, BarrierHoldsEveryoneBack) {
  auto team = ThreadTeam::create(3);
  ASSERT_TRUE(team.ok());
  BarrierCheck check{team->get()};
  (*team)->run(
      [](void *context, int) {
        auto &self = *static_cast<BarrierCheck *>(context);
        for (int phase = 1; phase <= 500; ++phase) {
          self.arrived++;
          self.team->barrier();
          if (self.arrived < 3 * phase)
            self.early = true;
          self.team->barrier();
        }
      },
      &check);
  EXPECT_FALSE(check.early);
  EXPECT_EQ(check.arrived, 1500);
}

/// rows -> rows, reversed by scratch of each worker, then a chain of two stages through a
/// value of one chunk.
static TestPlan rowPlan(int threads, int64_t rows, int64_t columns, int64_t chunk) {
  TestPlan p;
  p.plan.threads = threads;
  p.plan.batch = rows;
  fbs::ProgramT &infer = p.program("infer");
  uint64_t rowBytes = static_cast<uint64_t>(columns) * 4;
  Place x = p.input(infer, "x", DType::f32, {rows, columns});
  Place a = p.buffer(infer, x.size);
  Place b = p.buffer(infer, x.size);
  Place scratch = p.buffer(infer, rowBytes * static_cast<uint64_t>(threads));
  uint64_t sliceBytes = rowBytes * static_cast<uint64_t>(chunk);
  Place piece = p.buffer(infer, sliceBytes * static_cast<uint64_t>(threads));
  Place y = p.output(infer, "y", DType::f32, {rows, columns}, true);
  p.launch(infer, "test_rows", {x, a}, rows, chunk, {columns});
  p.launch(infer, "test_reverse", {a, scratch, b}, rows, chunk, {columns})
      .stages[0]
      ->operands[1]
      .mutate_worker_stride(rowBytes);
  fbs::LaunchT &chain = p.launch(infer, "test_rows", {b, piece}, rows, chunk, {columns});
  p.stage(chain, "test_rows", {piece, y}, {columns});
  for (fbs::Operand *operand :
       {&chain.stages[0]->operands[1], &chain.stages[1]->operands[0]}) {
    operand->mutate_worker_stride(sliceBytes);
    operand->mutate_unit_stride(rowBytes);
  }
  return p;
}

static std::vector<float> runRows(const PlanPtr &plan, int threads, int64_t rows,
                                  int64_t columns) {
  SessionOptions options;
  options.threads = threads;
  auto session = makeSession(plan, options);
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 97);
  Batch batch;
  batch.data = {x.data()};
  batch.count = rows;
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_TRUE(session->infer(batch).ok());
  auto y = session->output("y");
  EXPECT_TRUE(y.ok());
  std::vector<float> result(x.size());
  std::memcpy(result.data(), y->data, y->bytes);
  return result;
}

TEST(Executor, ChunksAndThreadsDoNotChangeTheResult) {
  constexpr int64_t rows = 61, columns = 5;
  for (int64_t chunk : {1, 4, 61, 100})
    for (int threads : {1, 2, 3}) {
      PlanPtr plan = rowPlan(3, rows, columns, chunk).read();
      ASSERT_NE(plan, nullptr);
      std::vector<float> y = runRows(plan, threads, rows, columns);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          float x = static_cast<float>((r * columns + columns - 1 - c) % 97);
          float expected = ((x * 3 + float(r)) * 3 + float(r)) * 3 + float(r);
          ASSERT_EQ(y[static_cast<size_t>(r * columns + c)], expected)
              << "row " << r << ", chunk " << chunk << ", threads " << threads;
        }
    }
}

/// Parts of 1, 9, 2 and 30 units of different row lengths, cut at chunks that know
/// nothing of them: each row is written once, with the number it has in its part.
TEST(Executor, RunsEveryUnitOfEveryPartOnce) {
  const std::vector<int64_t> sizes = {1, 9, 2, 30}, columns = {3, 1, 16, 5};
  for (int64_t chunk : {1, 4, 11, 100})
    for (int threads : {1, 3}) {
      TestPlan p;
      p.plan.threads = threads;
      fbs::ProgramT &infer = p.program("infer");
      std::vector<Place> from, to;
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<int64_t> shape = {sizes[i], columns[i]};
        from.push_back(p.state("param/x" + std::to_string(i), DType::f32, shape));
        to.push_back(p.state("param/y" + std::to_string(i), DType::f32, shape));
      }
      fbs::LaunchT &launch =
          p.launch(infer, "test_rows", {from[0], to[0]}, 42, chunk, {columns[0]});
      for (size_t i = 1; i < sizes.size(); ++i)
        p.stage(launch, "test_rows", {from[i], to[i]}, {columns[i]});
      int64_t next = 0;
      for (size_t i = 0; i < sizes.size(); ++i) {
        launch.stages[i]->first_unit = next, launch.stages[i]->units = sizes[i];
        next += sizes[i];
      }
      auto session = makeSession(p.read());
      ASSERT_NE(session, nullptr);
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<float> ones(static_cast<size_t>(sizes[i] * columns[i]), 1);
        ASSERT_TRUE(session
                        ->writeState("param/x" + std::to_string(i), ones.data(),
                                     ones.size() * sizeof(float))
                        .ok());
      }
      Batch batch;
      batch.count = 1;
      ASSERT_TRUE(session->infer(batch).ok());
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<float> y(static_cast<size_t>(sizes[i] * columns[i]));
        auto bytes = session->state("param/y" + std::to_string(i));
        ASSERT_EQ(bytes.size(), y.size() * sizeof(float));
        std::memcpy(y.data(), bytes.data(), bytes.size());
        for (size_t k = 0; k < y.size(); ++k)
          ASSERT_EQ(y[k], 3 + float(int64_t(k) / columns[i]))
              << "part " << i << ", chunk " << chunk << ", threads " << threads;
      }
    }
}

TEST(Executor, RunsEveryUnitExactlyOnce) {
  TestPlan p;
  p.plan.threads = 4;
  constexpr int64_t units = 1000;
  Place counts = p.state("param/counts", DType::f32, {units});
  fbs::ProgramT &infer = p.program("infer");
  for (int64_t chunk : {1, 3, 7, 999, 1000})
    p.launch(infer, "test_count", {counts}, units, chunk);
  p.launch(infer, "test_count", {counts}, 0, 1); // nothing to do
  auto session = makeSession(p.read());
  Batch batch;
  batch.count = 1;
  for (int repeat = 0; repeat < 20; ++repeat)
    ASSERT_TRUE(session->infer(batch).ok());
  std::vector<float> values(units);
  ASSERT_TRUE(session->readState("param/counts", values.data(), units * 4).ok());
  for (float value : values)
    ASSERT_EQ(value, 100.0f);
}

TEST(Executor, MoreThreadsThanPlannedAreRefused) {
  SessionOptions options;
  options.threads = 2;
  options.resolver = testKernel;
  auto session = Session::create(scalarPlan(1, 1, 1).read(), options);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code, StatusCode::usage);
  EXPECT_NE(session.status().message.find("--threads 2"), std::string::npos);
}

static unsigned seenMode[2];
static void readMode(void *const *, const int64_t *, int64_t begin, int64_t, int64_t) {
  seenMode[begin] = _mm_getcsr() & 0xffc0;
}

TEST(Executor, KernelsRunWithoutFlushingWhateverTheCallerDoes) {
  TestPlan p;
  p.plan.threads = 2;
  Place counts = p.state("param/counts", DType::f32, {2});
  p.launch(p.program("infer"), "mode", {counts}, 2, 1);
  SessionOptions options;
  options.resolver = [](std::string_view, FeatureLevel) { return readMode; };
  auto session = makeSession(p.read(), options);
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040); // flush results and inputs to zero
  Batch batch;
  batch.count = 1;
  Status status = session->infer(batch);
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(after & 0x8040, 0x8040u);
  EXPECT_EQ(seenMode[0], 0x1f80u);
  EXPECT_EQ(seenMode[1], 0x1f80u);
}

TEST(Trace, HoldsTheLastLaunchesOfEveryWorker) {
  PlanPtr plan = rowPlan(2, 8, 4, 1).read();
  SessionOptions options;
  options.traceEvents = 5;
  auto session = makeSession(plan, options);
  std::vector<float> x(32, 1);
  Batch batch;
  batch.data = {x.data()};
  batch.count = 8;
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(session->infer(batch).ok());
  ASSERT_EQ(session->trace()->workers(), 2);
  std::vector<TraceEvent> events = session->trace()->events(1);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[4].launch, 2u);
  EXPECT_EQ(events[3].launch, 1u);
  EXPECT_LE(events[3].endNs, events[4].beginNs);
  std::string json = traceJson(*session->trace(), *plan);
  EXPECT_NE(json.find("\"node\":\"node/test_reverse\""), std::string::npos);
  EXPECT_NE(json.find("\"worker 1\""), std::string::npos);
}

} // namespace sluice::test
