// Concatenations and slices inside of regions: read where they lie, with the bits of the
// tensor that a copy would have made.
#include "passes/RegionDomain.h"
#include "tests/codegen/RegionCase.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
/// `sizes` parts along `axis` of a tensor like `shape`.
std::vector<HostTensor> parts(Shape shape, int64_t axis, const Shape &sizes) {
  std::vector<HostTensor> tensors;
  for (int64_t size : sizes) {
    shape[axis] = size;
    tensors.push_back(uniform(shape, static_cast<unsigned>(tensors.size()) + 1));
  }
  return tensors;
}

/// What a copy of the parts holds.
HostTensor joined(const std::vector<HostTensor> &pieces, int64_t axis) {
  Shape shape(pieces[0].shape.begin(), pieces[0].shape.end());
  int64_t outer = 1;
  for (int64_t i = 0; i < axis; ++i)
    outer *= shape[i];
  shape[axis] = 0;
  for (const HostTensor &piece : pieces)
    shape[axis] += piece.shape[axis];
  std::vector<double> values;
  for (int64_t i = 0; i < outer; ++i)
    for (const HostTensor &piece : pieces) {
      int64_t run = piece.size() / outer;
      values.insert(values.end(), piece.reals.begin() + i * run,
                    piece.reals.begin() + (i + 1) * run);
    }
  return reals(shape, values);
}

using Use = std::function<Values(GraphBuilder &, Value)>;

/// `use` of a concatenation against `use` of the tensor itself, bit by bit, and against
/// the interpreter.
void checkConcat(const std::vector<HostTensor> &pieces, int64_t axis, const Use &use) {
  std::vector<HostTensor> read = check(
      [&](GraphBuilder &b, ArrayRef<Value> x) {
        return use(b, b.make<graph::ConcatOp>(ValueRange(x), axis));
      },
      pieces);
  std::vector<HostTensor> copied =
      check([&](GraphBuilder &b, ArrayRef<Value> x) { return use(b, x[0]); },
            {joined(pieces, axis)});
  expectSameBits(read, copied);
}

/// Batch statistics along dimension 1 and what they normalise.
Values normalised(GraphBuilder &b, Value x) {
  SmallVector<int64_t> axes{0};
  for (int64_t dim = 2; dim < graph::tensorType(x).getRank(); ++dim)
    axes.push_back(dim);
  ArrayRef<int64_t> shape = graph::tensorType(x).getShape();
  Value mean = b.scale(b.sum(x, axes, false), 1.0 / shape[0]);
  Value apart = b.sub(x, b.broadcastAlong(mean, shape, 1));
  Value squares = b.sum(b.mul(apart, apart), axes, false);
  return {b.make<graph::ReluOp>(apart), mean, squares};
}

Values activated(GraphBuilder &b, Value x) {
  return {b.make<graph::ReluOp>(b.shift(x, 0.25))};
}

FailureOr<RegionDomain> domainOf(const Body &body, std::vector<HostTensor> inputs) {
  RegionCase region(body, std::move(inputs));
  return analyseRegion(region.region());
}
} // namespace

TEST(MovedRead, ChannelsFromPartsOfAnySizes) {
  for (int64_t batch : {1, 3})
    for (const Shape &sizes : {Shape{5, 3}, Shape{1, 1, 7}, Shape{2, 9, 1, 4}})
      for (int64_t pixels : {16, 33, 49}) {
        auto pieces = parts({batch, 0, pixels}, 1, sizes);
        checkConcat(pieces, 1, activated);
        checkConcat(pieces, 1, normalised);
      }
}

TEST(MovedRead, AsManyAsThirtyParts) {
  for (int64_t count : {2, 3, 8, 17, 30}) {
    Shape sizes;
    for (int64_t i = 0; i < count; ++i)
      sizes.push_back(1 + i * 7 % 4);
    checkConcat(parts({2, 0, 5, 7}, 1, sizes), 1, normalised);
  }
}

TEST(MovedRead, AlongTheFirstAndAMiddleDimension) {
  for (const Shape &sizes : {Shape{2, 1}, Shape{1, 3, 2}}) {
    checkConcat(parts({0, 3, 20}, 0, sizes), 0, activated);
    checkConcat(parts({2, 3, 0, 35}, 2, sizes), 2, activated);
    auto rowSoftmax = [](GraphBuilder &b, Value x) {
      int64_t last = graph::tensorType(x).getRank() - 1;
      Value e = b.exp(b.sub(x, b.broadcastLike(b.reduce(x, "max", {last}, true), x)));
      return Values{b.div(e, b.broadcastLike(b.sum(e, {last}, true), x))};
    };
    checkConcat(parts({0, 100}, 0, sizes), 0, rowSoftmax);
    checkConcat(parts({2, 0, 100}, 1, sizes), 1, rowSoftmax);
  }
}

TEST(MovedRead, SumsOverRowsInsideAndOutside) {
  // Rows behind the parts' dimension, then in front of it.
  auto sumOf = [](int64_t axis) {
    return [axis](GraphBuilder &b, Value x) {
      return Values{b.sum(b.mul(x, x), {axis}, false)};
    };
  };
  checkConcat(parts({0, 70, 80}, 0, {2, 1}), 0, sumOf(1));
  checkConcat(parts({70, 0, 80}, 1, {2, 3}), 1, sumOf(0));
}

TEST(MovedRead, TheSamePartTwice) {
  HostTensor x = uniform({2, 3, 40});
  std::vector<HostTensor> read = check(
      [](GraphBuilder &b, ArrayRef<Value> v) {
        return activated(b, b.make<graph::ConcatOp>(ValueRange{v[0], v[0]}, 1));
      },
      {x});
  std::vector<HostTensor> copied =
      check([](GraphBuilder &b, ArrayRef<Value> v) { return activated(b, v[0]); },
            {joined({x, x}, 1)});
  expectSameBits(read, copied);
}

TEST(MovedRead, IntegersAndFlags) {
  check(
      [](GraphBuilder &b, ArrayRef<Value> x) {
        Value all = b.make<graph::ConcatOp>(ValueRange{x[0], x[1]}, 1);
        Value other = b.make<graph::ConcatOp>(ValueRange{x[2], x[3]}, 1);
        Value more = b.compare(all, "gt", other);
        return Values{b.select(more, all, other)};
      },
      {integers({2, 1, 20}, std::vector<int64_t>(40, 3)),
       integers({2, 2, 20}, std::vector<int64_t>(80, -1)),
       integers({2, 2, 20}, std::vector<int64_t>(80, 2)),
       integers({2, 1, 20}, std::vector<int64_t>(40, 1))});
}

TEST(MovedRead, TheLastDimensionIsNoPlaceToChoose) {
  auto join = [](GraphBuilder &b, ArrayRef<Value> x) {
    return activated(b, b.make<graph::ConcatOp>(ValueRange(x), 1));
  };
  EXPECT_TRUE(failed(domainOf(join, parts({4, 0}, 1, {16, 48}))));
  // Nor is one that is summed up, or cut in two.
  auto sum = [](GraphBuilder &b, ArrayRef<Value> x) {
    return Values{b.sum(b.make<graph::ConcatOp>(ValueRange(x), 0), {0}, false)};
  };
  EXPECT_TRUE(failed(domainOf(sum, parts({0, 64}, 0, {3, 4}))));
  auto cut = [](GraphBuilder &b, ArrayRef<Value> x) {
    Value all = b.make<graph::ConcatOp>(ValueRange(x), 1);
    Value shuffled = b.reshape(all, {2, 2, 3, 40});
    return Values{b.add(shuffled, b.broadcastLike(b.splatLike(x[0], 1), shuffled))};
  };
  EXPECT_TRUE(failed(domainOf(cut, parts({2, 0, 40}, 1, {3, 3}))));
}

TEST(MovedRead, NoOutputLiesOnAPartOrASlice) {
  RegionCase region(
      [](GraphBuilder &b, ArrayRef<Value> x) {
        Value all = b.make<graph::ConcatOp>(ValueRange{x[0], x[1]}, 1);
        Value part = b.make<graph::SliceOp>(x[3], ArrayRef<int64_t>{0, 1, 0},
                                            ArrayRef<int64_t>{2, 3, 40},
                                            ArrayRef<int64_t>{1, 1, 1});
        return Values{b.add(b.add(all, x[2]), part)};
      },
      {uniform({2, 1, 40}), uniform({2, 2, 40}), uniform({2, 3, 40}),
       uniform({2, 4, 40})});
  for (unsigned input = 0; input < 4; ++input)
    EXPECT_EQ(canUpdateInPlace(region.region(), input, 0), input == 2) << input;
}

namespace {
/// A slice and a whole tensor of its shape.
void checkSlice(const Shape &shape, int64_t axis, int64_t start, int64_t size) {
  Shape cut = shape;
  cut[axis] = size;
  check(
      [&](GraphBuilder &b, ArrayRef<Value> x) {
        SmallVector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
        starts[axis] = start;
        Value part = b.make<graph::SliceOp>(x[0], starts, cut, steps);
        Value sum = b.add(part, x[1]);
        return Values{sum, b.sum(b.mul(sum, part), {0}, false)};
      },
      {uniform(shape, 1), uniform(cut, 2)});
}
} // namespace

TEST(MovedRead, SlicesOfEveryDimension) {
  for (int64_t start : {0, 1, 3}) {
    checkSlice({7, 20}, 0, start, 4);
    checkSlice({7, 20}, 1, start, 17);
    checkSlice({4, 7, 20}, 1, start, 4);
    checkSlice({70, 7, 33}, 2, start, 19);
    checkSlice({3, 2, 9, 40}, 2, start, 5);
    checkSlice({50}, 0, start, 40);
  }
}

TEST(MovedRead, TwoSlicesOfOneTensor) {
  check(
      [](GraphBuilder &b, ArrayRef<Value> x) {
        auto part = [&](int64_t start) {
          return b.make<graph::SliceOp>(x[0], ArrayRef<int64_t>{0, start},
                                        ArrayRef<int64_t>{5, 40},
                                        ArrayRef<int64_t>{1, 1});
        };
        return Values{b.mul(part(0), b.exp(part(40)))};
      },
      {uniform({5, 80})});
}

TEST(MovedRead, SumsOverBothSidesOfASliceKeepTheirOrder) {
  auto body = [](GraphBuilder &b, ArrayRef<Value> x) {
    Value part =
        b.make<graph::SliceOp>(x[0], ArrayRef<int64_t>{0, 0, 1},
                               ArrayRef<int64_t>{3, 5, 30}, ArrayRef<int64_t>{1, 1, 1});
    return Values{b.sum(part, {1, 2}, false)};
  };
  EXPECT_TRUE(failed(domainOf(body, {uniform({3, 5, 40})})));
}

TEST(MovedRead, SlicesOfSeveralDimensionsAreCopied) {
  auto body = [](GraphBuilder &b, ArrayRef<Value> x) {
    return activated(b, b.make<graph::SliceOp>(x[0], ArrayRef<int64_t>{1, 2},
                                               ArrayRef<int64_t>{3, 20},
                                               ArrayRef<int64_t>{1, 1}));
  };
  EXPECT_TRUE(failed(domainOf(body, {uniform({5, 30})})));
  auto stepped = [](GraphBuilder &b, ArrayRef<Value> x) {
    return activated(b, b.make<graph::SliceOp>(x[0], ArrayRef<int64_t>{0, 0},
                                               ArrayRef<int64_t>{5, 15},
                                               ArrayRef<int64_t>{1, 2}));
  };
  EXPECT_TRUE(failed(domainOf(stepped, {uniform({5, 30})})));
}
