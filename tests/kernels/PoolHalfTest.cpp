// Pools of 16-bit operands: the f32 pools of the widened operands, rounded once.

#include "tests/kernels/HalfFormats.h"
#include "tests/kernels/PoolCase.h"

namespace sluice::test {
namespace {

Bytes run(const char *name, const PoolParams &p, std::vector<Bytes> inputs,
          int64_t outputs, bool grad) {
  size_t result = inputs.size();
  inputs.push_back(poisoned(outputs * formatBytes(p.resultType)));
  if (grad && poolGradWorkerBytes(p) > 0)
    inputs.push_back({});
  return runEverywhere({name, packParams(p), p.planes, inputs})[result];
}

/// Operands of one 16-bit type, with a result of it and one of f32.
void checkPool(const char *name, PoolParams p, const std::vector<Bytes> &inputs,
               int64_t type, int64_t outputs, bool grad) {
  SCOPED_TRACE(name);
  std::vector<Bytes> wide;
  for (const Bytes &bytes : inputs)
    wide.push_back(widened(bytes, type));
  Bytes sums = run(name, p, wide, outputs, grad);
  p.sourceType = type, p.dyType = inputs.size() == 2 ? type : format::kF32;
  EXPECT_EQ(run(name, p, inputs, outputs, grad), sums);
  if (inputs.size() == 2) { // only x of 16 bits
    p.dyType = format::kF32;
    EXPECT_EQ(run(name, p, {inputs[0], wide[1]}, outputs, grad), sums);
    p.dyType = type;
  }
  p.resultType = type;
  EXPECT_EQ(run(name, p, inputs, outputs, grad), stored(fromBytes<float>(sums), type));
}

void checkAll(PoolParams p) {
  for (int64_t type : kHalfFormats) {
    std::mt19937 rng(5);
    std::vector<float> x(p.planes * volume(p.in));
    for (float &v : x) // many ties
      v = float(int(rng() % 5)) - 2;
    Bytes xs = stored(x, type);
    int64_t inputs = x.size(), outputs = p.planes * volume(p.out);
    Bytes dy = stored(randomFloats(rng, outputs), type);
    checkPool("max_pool_f32", p, {xs}, type, outputs, false);
    checkPool("max_pool_grad_f32", p, {xs, dy}, type, inputs, true);
    for (bool include : {false, true}) {
      p.countIncludePad = include;
      checkPool("avg_pool_f32", p, {xs}, type, outputs, false);
      checkPool("avg_pool_grad_f32", p, {dy}, type, inputs, true);
    }
    p.countIncludePad = 0;
  }
}

TEST(PoolHalf, TwoByTwo) {
  checkAll(pool(3, {{8, 2, 2}, {16, 2, 2}}));
  checkAll(pool(3, {{9, 2, 2}, {29, 2, 2}})); // a row and a column left over
  for (int64_t width = 0; width < 18; ++width)
    checkAll(pool(2, {{5, 2, 2}, {width, 2, 2}}));
}
TEST(PoolHalf, LongRows) { checkAll(pool(1, {{3, 2}, {200, 3, 1, 1, 1, 1}})); }
TEST(PoolHalf, Overlapping) {
  checkAll(pool(3, {{9, 3, 2, 1, 1, 1}, {21, 3, 1, 1, 1, 1}}));
}
TEST(PoolHalf, PlanesTooLargeToWidenWhole) {
  checkAll(pool(1, {{150, 3, 2, 1, 1, 1}, {160, 3, 2, 1, 1, 1}}));
}
TEST(PoolHalf, CeilModePadsAndDilations) {
  checkAll(pool(2, {{8, 3, 2, 1, 0, 1, true}, {9, 2, 2, 1, 1, 0, true}}));
  checkAll(pool(2, {{11, 3, 2, 2, 2, 1}, {12, 2, 3, 3, 1, 2}}));
}
TEST(PoolHalf, OneAndThreeDimensions) {
  checkAll(pool(2, {{30, 4, 3, 1, 1, 2}}));
  checkAll(pool(2, {{4, 2, 2}, {5, 3, 1, 1, 1, 1}, {6, 2, 1}}));
}
TEST(PoolHalf, WholePlaneAndEmpty) {
  checkAll(pool(5, {{7, 7}, {7, 7}}));
  checkAll(pool(0, {{7, 3}, {7, 3}}));
  checkAll(pool(2, {{2, 3}, {2, 3}}));
}

} // namespace
} // namespace sluice::test
