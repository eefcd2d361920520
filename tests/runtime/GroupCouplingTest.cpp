// The coupling of groups: of gradients that move together, and of independent ones.

#include "runtime/probe/GroupCoupling.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::test {
namespace {

GroupCoupling couplingOf(double shared, int64_t samples) {
  GroupCoupling coupling({"a.bias", "a.weight", "b.weight", "head"},
                         {{"second", {"b.weight"}}, {"first", {"a.weight", "a.bias"}}},
                         3);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (int64_t s = 0; s < samples; ++s) {
    double both = normal(random);
    for (size_t p = 0; p < 4; ++p) {
      double own = normal(random);
      std::vector<float> gradient(p == 2 ? 7 : 3);
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>((1 + 0.37 * double(i * i) + 0.11 * double(p)) *
                                         (shared * both + (1 - shared) * own));
      coupling.add(p, gradient);
    }
    coupling.endSample(1);
  }
  return coupling;
}

TEST(GroupCoupling, KeepsTheOrderOfTheGroups) {
  GroupCoupling coupling = couplingOf(0, 4);
  EXPECT_EQ(coupling.groups(), (std::vector<std::string>{"second", "first"}));
  EXPECT_EQ(coupling.samples(), 4);
  EXPECT_TRUE(coupling.isOn());
}

TEST(GroupCoupling, IsCompleteForGradientsThatMoveTogether) {
  for (double c : couplingOf(1, 50).neighbours())
    EXPECT_NEAR(c, 1, 1e-6);
}

TEST(GroupCoupling, OfIndependentGroupsIsTheNoise) {
  GroupCoupling coupling = couplingOf(0, 2000);
  EXPECT_LT(coupling.noise(), 0.03);
  EXPECT_LT(coupling.kappa(), 3 * coupling.noise());
  for (double c : coupling.neighbours())
    EXPECT_LT(c, 0.06);
}

} // namespace
} // namespace sluice::test
