#include "codegen/Fit.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

struct Found {
  LargestSize largest;
  int calls = 0;
};

template <typename Bytes>
Found search(int64_t start, int64_t budget, Bytes bytesOf, int64_t most = 1 << 20) {
  Found found;
  Status status = findLargest(
      {start, bytesOf(start), bytesOf(0), most, budget},
      [&](int64_t size, int64_t &bytes) {
        EXPECT_NE(size, start) << "that is known";
        ++found.calls;
        bytes = bytesOf(size);
        return Status::success();
      },
      found.largest);
  EXPECT_TRUE(status.ok());
  return found;
}

TEST(FindLargest, IsExactOnALineAfterFewTries) {
  for (int64_t start : {1, 8, 1000})
    for (int64_t budget : {1100, 5000, 5001, 123456}) {
      auto bytes = [](int64_t size) { return 1000 + 7 * size; };
      Found found = search(start, budget, bytes);
      EXPECT_EQ(found.largest.size, (budget - 1000) / 7) << start << " " << budget;
      EXPECT_TRUE(found.largest.isProved);
      EXPECT_LE(found.calls, 3);
    }
}

TEST(FindLargest, FollowsCurvesAndSteps) {
  auto square = [](int64_t size) { return 100 + size * size; };
  EXPECT_EQ(search(1, 10100, square).largest.size, 100);
  auto steps = [](int64_t size) { return (size + 15) / 16 * 1000; };
  Found found = search(4, 5500, steps);
  EXPECT_LE(steps(found.largest.size), 5500);
  EXPECT_GE(found.largest.size, 64);
}

TEST(FindLargest, NothingFitsAndEverythingFits) {
  auto bytes = [](int64_t size) { return 1000 + size; };
  Found none = search(8, 500, bytes);
  EXPECT_EQ(none.largest.size, 0);
  Found all = search(8, 1 << 30, bytes, /*most=*/64);
  EXPECT_EQ(all.largest.size, 64);
  EXPECT_FALSE(all.largest.isProved) << "more than the most was not tried";
}

TEST(FindLargest, SizesThatAreRefusedAreTooLarge) {
  LargestSize largest;
  auto bytesOf = [](int64_t size, int64_t &bytes) {
    bytes = 10 * size;
    return size > 40 ? Status::refused("too many elements") : Status::success();
  };
  ASSERT_TRUE(findLargest({4, 40, 0, 1 << 20, 1000}, bytesOf, largest).ok());
  EXPECT_EQ(largest.size, 40);
}

TEST(FindLargest, RefusingEverySizeIsAnError) {
  LargestSize largest;
  Status status = findLargest(
      {4, 40, 0, 100, 1000},
      [](int64_t, int64_t &) { return Status::refused("no such shape"); }, largest);
  EXPECT_EQ(status.message, "no such shape");
}

TEST(MemoryCurve, TakesTheFastestThatFits) {
  MemoryCurve curve;
  curve.points = {{100, 30}, {200, 20}, {400, 10}};
  EXPECT_EQ(curve.fastestWithin(99), nullptr);
  EXPECT_EQ(curve.fastestWithin(100)->stepUs, 30);
  EXPECT_EQ(curve.fastestWithin(399)->stepUs, 20);
  EXPECT_EQ(curve.fastestWithin(1000)->stepUs, 10);
}

} // namespace
