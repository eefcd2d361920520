// The static version table and its checker, on programs written by hand.

#include "passes/planning/VersionTable.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

using K = VersionResource;

TEST(VersionTable, OfSyncReadsTheNewestAndAppliesTheOwn) {
  VersionTable table = versionTable({{"a", 1, 0, 0}});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.at(1, 0).read, 1);
  EXPECT_EQ(table.at(1, 0).firstGradient, 1);
  EXPECT_EQ(table.at(1, 0).version, 2);
}

TEST(VersionTable, OfADeferredGroupBeginsWithStepsThatApplyNothing) {
  VersionTable table = versionTable({{"a", 1, 0, 2}, {"b", 1, 0, 0}});
  EXPECT_EQ(table.at(1, 0).firstGradient, -1);
  EXPECT_EQ(table.at(1, 0).version, 0);
  EXPECT_EQ(table.at(3, 0).read, 1);
  EXPECT_EQ(table.at(3, 0).lastGradient, 1);
  EXPECT_EQ(table.at(3, 1).read, 3);
}

TEST(VersionTable, OfGroupsThatInterleaveHasAShortFirstWindow) {
  VersionTable table = versionTable({{"a", 3, 0, 0}, {"b", 3, 1, 0}, {"c", 3, 2, 0}});
  EXPECT_EQ(table.at(0, 0).firstGradient, 0);
  EXPECT_EQ(table.at(1, 1).firstGradient, 0);
  EXPECT_EQ(table.at(1, 1).lastGradient, 1);
  EXPECT_EQ(table.at(4, 1).firstGradient, 2);
  EXPECT_EQ(table.at(4, 1).lastGradient, 4);
  EXPECT_EQ(table.at(4, 0).firstGradient, -1);
}

/// One group deferred by one step over a message: sum -> slot, slot -> message -> sum.
struct Deferred : testing::Test {
  enum { samples, weights, gradient, slot, sent, moments };
  VersionTable table = versionTable({{"w", 1, 0, 1}});
  VersionProblem problem;

  Deferred() {
    problem.resources = {{K::Samples, -1, "x"},   {K::Weights, 0, "w"},
                         {K::Scratch, -1, "dw"},  {K::Scratch, -1, "slot"},
                         {K::Scratch, -1, "sum"}, {K::Other, -1, "m"}};
    problem.maxAge = 1;
    problem.steps = {{{"step",
                       {{0, 2, {slot}, {sent}, true},
                        {0, 1, {samples, weights}, {gradient}},
                        {2, 3, {sent, weights, moments}, {weights, moments}},
                        {3, 4, {gradient}, {slot}}}}}};
  }
  std::vector<VersionEvent> &events() { return problem.steps[0][0].events; }
};

TEST_F(Deferred, IsAsTheTableSays) { EXPECT_EQ(checkVersions(table, problem), ""); }

TEST_F(Deferred, WrittenWhileItsMessageRunsIsARace) {
  events().push_back({1, 2, {gradient}, {slot}});
  EXPECT_NE(checkVersions(table, problem).find("'slot' is written while it may be used"),
            std::string::npos);
}

TEST_F(Deferred, UpdateInFrontOfTheForwardPartIsSeen) {
  std::swap(events()[1], events()[2]);
  events()[1].begin = 0, events()[1].end = 1;
  events()[0].end = 0;
  events()[2].begin = 2, events()[2].end = 3;
  EXPECT_NE(checkVersions(table, problem).find("is read in version 1, expected 0"),
            std::string::npos)
      << checkVersions(table, problem);
}

TEST_F(Deferred, GradientOfTheWrongStepIsSeen) {
  events()[2].reads = {gradient, weights}; // its own in place of the one that waits
  EXPECT_NE(checkVersions(table, problem).find("by gradients of steps 0, expected none"),
            std::string::npos);
}

TEST_F(Deferred, OlderThanAllowedIsSeen) {
  problem.maxAge = 0;
  EXPECT_NE(checkVersions(table, problem).find("has had 1 updates since"),
            std::string::npos);
}

TEST_F(Deferred, SumThatIsNotEmptiedIsSeen) {
  events()[3].reads = {gradient, slot};
  EXPECT_NE(checkVersions(table, problem).find("by gradients of steps 0, 1"),
            std::string::npos);
}

} // namespace
