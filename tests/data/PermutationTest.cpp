#include "runtime/data/Permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using namespace sluice;

namespace {

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 100, 1000, 4097, 60000})
    for (uint64_t epoch : {0, 1, 7}) {
      SamplePermutation permutation(42, epoch, size);
      std::vector<bool> seen(size, false);
      for (uint64_t i = 0; i < size; ++i) {
        uint64_t sample = permutation(i);
        ASSERT_LT(sample, size);
        ASSERT_FALSE(seen[sample]) << "size " << size << ", epoch " << epoch;
        seen[sample] = true;
      }
    }
}

/// Places that two orders share; about one for random ones.
int samePlaces(const SamplePermutation &a, const SamplePermutation &b, uint64_t size) {
  int count = 0;
  for (uint64_t i = 0; i < size; ++i)
    count += a(i) == b(i);
  return count;
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  constexpr uint64_t size = 5000;
  SamplePermutation base(1, 0, size);
  EXPECT_LT(samePlaces(base, SamplePermutation(2, 0, size), size), 20);
  EXPECT_LT(samePlaces(base, SamplePermutation(1, 1, size), size), 20);
  EXPECT_EQ(samePlaces(base, SamplePermutation(1, 0, size), size), int(size));
}

TEST(Permutation, LooksRandom) {
  // Neighbours in the order are not neighbours in the file: the rank correlation of a
  // place with its sample, and of a sample with the next, is within 5 standard errors of
  // zero.
  constexpr uint64_t size = 20000;
  SamplePermutation permutation(3, 2, size);
  double mean = (size - 1) / 2.0, variance = (double(size) * size - 1) / 12;
  double withPlace = 0, withNext = 0;
  for (uint64_t i = 0; i < size; ++i) {
    double sample = double(permutation(i)) - mean;
    withPlace += sample * (double(i) - mean);
    withNext += sample * (double(permutation((i + 1) % size)) - mean);
  }
  double limit = 5 / std::sqrt(double(size));
  EXPECT_LT(std::abs(withPlace / size / variance), limit);
  EXPECT_LT(std::abs(withNext / size / variance), limit);
}

TEST(Permutation, LargeSizesAreQuickToAsk) {
  SamplePermutation permutation(5, 0, uint64_t(1) << 40);
  EXPECT_LT(permutation(123456789012), uint64_t(1) << 40);
  EXPECT_NE(permutation(0), permutation(1));
}

} // namespace
