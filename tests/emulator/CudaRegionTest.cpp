// What CUDA kernels of regions promise beyond right values: no more traffic than needed,
// no bank conflicts, updates in place, limits that are named.
#include "tests/emulator/CudaRegionCase.h"

#include "codegen/cuda/CudaRegion.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
void expectLittleTraffic(const CudaRun &run) {
  EXPECT_LE(run.report.bytesLoaded, run.bytesIn * 1.05);
  EXPECT_LE(run.report.bytesStored, run.bytesOut * 1.05);
  EXPECT_EQ(run.report.bankConflicts, 0);
}

Values normalise(GraphBuilder &b, ArrayRef<Value> x, int64_t axis) {
  int64_t count = graph::tensorType(x[0]).getDimSize(axis);
  Value sum = b.broadcastLike(b.sum(x[0], {axis}, true), x[0]);
  return {b.sub(x[0], b.scale(sum, 1.0 / static_cast<double>(count)))};
}
} // namespace

TEST(CudaRegion, ElementwiseTouchesEachByteOnce) {
  RegionCase region([](GraphBuilder &b, auto x) { return Values{b.mul(x[0], x[1])}; },
                    {uniform({8192}, 1), uniform({8192}, 2)});
  expectLittleTraffic(checkOnEmulator(region));
}

TEST(CudaRegion, ColumnSumsTouchEachByteOnce) {
  RegionCase region(
      [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0}, false)}; },
      {uniform({200, 256})});
  expectLittleTraffic(checkOnEmulator(region));
}

TEST(CudaRegion, RowSumsTouchEachByteOnce) {
  RegionCase region(
      [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {1}, false)}; },
      {uniform({64, 1024})});
  CudaRun run = checkOnEmulator(region);
  EXPECT_LE(run.report.bytesLoaded, run.bytesIn * 1.05);
  EXPECT_EQ(run.report.bankConflicts, 0);
}

TEST(CudaRegion, EveryLengthOfRows) {
  for (int64_t columns : {1, 31, 32, 33, 128, 255, 256, 260, 1000, 1028, 5000})
    checkOnEmulator(*std::make_unique<RegionCase>(
        [](GraphBuilder &b, auto x) { return normalise(b, x, 1); },
        std::vector{uniform({3, columns})}));
}

TEST(CudaRegion, EveryNumberOfColumns) {
  for (int64_t columns : {1, 3, 63, 64, 68, 130})
    checkOnEmulator(*std::make_unique<RegionCase>(
        [](GraphBuilder &b, auto x) { return normalise(b, x, 1); },
        std::vector{uniform({2, 37, columns})}));
}

TEST(CudaRegion, UpdatesInPlace) {
  RegionCase region(
      [](GraphBuilder &b, auto x) { return Values{b.sub(x[0], b.scale(x[1], 0.1))}; },
      {uniform({1003}, 1), uniform({1003}, 2)});
  ASSERT_TRUE(canUpdateInPlace(region.region(), 0, 0));
  checkOnEmulator(region, 1e-5, InPlace{0, 0});
}

// Every row's factor is read by all threads of the row and replaced by one.
TEST(CudaRegion, UpdatesValuesOfARowInPlace) {
  RegionCase region(
      [](GraphBuilder &b, auto x) {
        Value scaled = b.mul(x[0], b.broadcastLike(x[1], x[0]));
        return Values{b.add(b.sum(scaled, {1}, true), x[1])};
      },
      {uniform({5, 700}, 1), uniform({5, 1}, 2)});
  if (canUpdateInPlace(region.region(), 1, 0))
    checkOnEmulator(region, 1e-4, InPlace{1, 0});
  checkOnEmulator(region, 1e-4);
}

TEST(CudaRegion, TooMuchSharedMemoryIsNamed) {
  RegionCase region(
      [](GraphBuilder &b, auto x) {
        Value e = b.exp(x[0]);
        return Values{b.div(e, b.broadcastLike(b.sum(e, {1}, true), e))};
      },
      {uniform({2, 4000})});
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(cuda::emitCudaRegion(region.region(), *kernels, 32)));
  EXPECT_NE(message.find("bytes of shared memory in a block, the target has 32"),
            std::string::npos)
      << message;
}
