#include "passes/RegionDomain.h"
#include "tests/codegen/RegionCase.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
FailureOr<RegionDomain> domainOf(const Body &body, std::vector<HostTensor> inputs) {
  RegionCase region(body, std::move(inputs));
  return analyseRegion(region.region());
}

HostTensor zeros(Shape shape) {
  HostTensor tensor = reals(std::move(shape), {});
  tensor.reals.resize(tensor.size());
  return tensor;
}

using Dims = SmallVector<int64_t>;

Values softmaxLast(GraphBuilder &b, ArrayRef<Value> x) {
  int64_t last = graph::tensorType(x[0]).getRank() - 1;
  Value largest = b.broadcastLike(b.reduce(x[0], "max", {last}, true), x[0]);
  Value e = b.exp(b.sub(x[0], largest));
  Value sum = b.broadcastLike(b.sum(e, {last}, true), x[0]);
  return {b.div(e, sum)};
}
} // namespace

TEST(RegionDomain, CollapsesElementwiseWorkToOneDimension) {
  auto domain =
      domainOf([](GraphBuilder &b, auto x) { return Values{b.add(x[0], x[1])}; },
               {zeros({4, 5, 6}), zeros({4, 5, 6})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->kind, WalkKind::Flat);
  EXPECT_EQ(domain->dims, Dims({120}));
  EXPECT_EQ(domain->units, 1);
}

TEST(RegionDomain, KeepsTheDimensionThatABiasRunsAlong) {
  auto domain =
      domainOf([](GraphBuilder &b,
                  auto x) { return Values{b.add(x[0], b.broadcastLike(x[1], x[0]))}; },
               {zeros({4, 5, 6}), zeros({6})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->kind, WalkKind::Rows);
  EXPECT_EQ(domain->dims, Dims({20, 6}));
  EXPECT_EQ(domain->units, 20);
}

TEST(RegionDomain, PlacesSoftmaxInThreePassesAndKeepsTheExponentials) {
  auto domain = domainOf(softmaxLast, {zeros({2, 3, 40})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->kind, WalkKind::Rows);
  EXPECT_EQ(domain->dims, Dims({6, 40}));
  EXPECT_EQ(domain->passes, 3);
  EXPECT_EQ(domain->kept.size(), 1u);
  EXPECT_EQ(domain->scratchBytes, 48 * 4);
}

TEST(RegionDomain, FollowsReshapesThatSplitAndJoinDimensions) {
  auto domain = domainOf(
      [](GraphBuilder &b, auto x) {
        Value joined = b.reshape(x[0], {20, 6});
        Value biased = b.add(joined, b.broadcastLike(x[1], joined));
        return Values{b.reshape(biased, {2, 10, 1, 6})};
      },
      {zeros({4, 5, 6}), zeros({6})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->dims, Dims({20, 6}));
}

TEST(RegionDomain, SumsOverRowsInStrips) {
  auto domain =
      domainOf([](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0, 1}, false)}; },
               {zeros({8, 9, 130})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->kind, WalkKind::Columns);
  EXPECT_EQ(domain->dims, Dims({72, 130}));
  EXPECT_EQ(domain->units, 3);
}

TEST(RegionDomain, SumsOverBothSidesOfAChannel) {
  auto domain = domainOf(
      [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0, 2, 3}, false)}; },
      {zeros({8, 3, 5, 7})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->kind, WalkKind::Channels);
  EXPECT_EQ(domain->dims, Dims({8, 3, 35}));
  EXPECT_EQ(domain->units, 3);
}

TEST(RegionDomain, ReadsOneInputAsRowAndAsColumn) {
  auto domain = domainOf(
      [](GraphBuilder &b, auto x) {
        Value row = b.broadcast(b.reshape(x[0], {1, 5}), {5, 5});
        Value column = b.broadcast(b.reshape(x[0], {5, 1}), {5, 5});
        return Values{b.mul(row, column)};
      },
      {zeros({5})});
  ASSERT_TRUE(succeeded(domain));
  EXPECT_EQ(domain->dims, Dims({5, 5}));
}

TEST(RegionDomain, RefusesReductionsOfDifferentDimensions) {
  EXPECT_TRUE(failed(domainOf(
      [](GraphBuilder &b, auto x) {
        return Values{b.sum(x[0], {0}, false), b.sum(x[0], {1}, false)};
      },
      {zeros({4, 5})})));
}

TEST(RegionDomain, RefusesOutputsThatSeveralUnitsWouldWrite) {
  EXPECT_TRUE(failed(domainOf(
      [](GraphBuilder &b, auto x) {
        Value bias = b.exp(x[1]);
        return Values{b.add(x[0], b.broadcastLike(bias, x[0])), bias};
      },
      {zeros({4, 5}), zeros({5})})));
}

TEST(RegionDomain, RefusesTransposes) {
  EXPECT_TRUE(failed(domainOf(
      [](GraphBuilder &b, auto x) {
        return Values{b.make<graph::TransposeOp>(x[0], ArrayRef<int64_t>{1, 0})};
      },
      {zeros({4, 5})})));
}

TEST(RegionDomain, RefusesValuesOfUnrelatedShapes) {
  EXPECT_TRUE(failed(
      domainOf([](GraphBuilder &b, auto x) { return Values{b.exp(x[0]), b.exp(x[1])}; },
               {zeros({4, 5}), zeros({6, 7})})));
}

TEST(RegionDomain, AllowsUpdatesInPlaceWhereEachElementIsReadFirst) {
  RegionCase region(
      [](GraphBuilder &b, auto x) {
        return Values{b.add(x[0], b.broadcastLike(x[1], x[0]))};
      },
      {zeros({4, 5}), zeros({5})});
  EXPECT_TRUE(canUpdateInPlace(region.region(), 0, 0));
  EXPECT_FALSE(canUpdateInPlace(region.region(), 1, 0));
}

TEST(RegionDomain, RefusesUpdatesInPlaceOfWhatALaterPassReads) {
  // y is written in the first pass, x is read again in the second.
  RegionCase region(
      [](GraphBuilder &b, auto x) {
        Value y = b.add(x[0], x[0]);
        Value sum = b.broadcastLike(b.sum(y, {1}, true), y);
        return Values{y, b.mul(x[0], sum)};
      },
      {zeros({4, 5})});
  EXPECT_FALSE(canUpdateInPlace(region.region(), 0, 0));
  EXPECT_TRUE(canUpdateInPlace(region.region(), 0, 1));
}

TEST(RegionDomain, RefusesUpdatesInPlaceOfAnInputReadInTwoWays) {
  // Each row reads all of x as a row, and its own element of x as a column.
  RegionCase region(
      [](GraphBuilder &b, auto x) {
        Value row = b.broadcast(b.reshape(x[0], {1, 5}), {5, 5});
        Value column = b.broadcast(b.reshape(x[0], {5, 1}), {5, 5});
        return Values{b.sum(b.mul(b.mul(row, column), x[1]), {1}, false)};
      },
      {zeros({5}), zeros({5, 5})});
  ASSERT_TRUE(succeeded(analyseRegion(region.region())));
  EXPECT_FALSE(canUpdateInPlace(region.region(), 0, 0));
}
