// The bits of an operation do not depend on the region it is in.
#include "tests/codegen/RegionCase.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
Value softmax(GraphBuilder &b, Value x) {
  Value largest = b.broadcastLike(b.reduce(x, "max", {1}, true), x);
  Value e = b.exp(b.sub(x, largest));
  return b.div(e, b.broadcastLike(b.sum(e, {1}, true), x));
}

std::vector<HostTensor> run(const Body &body, std::vector<HostTensor> inputs) {
  RegionCase region(body, std::move(inputs));
  return RegionKernel(region).runEverywhere();
}
} // namespace

TEST(RegionBits, SoftmaxAloneAndInsideALargerRegion) {
  for (int64_t columns : {17, 256, 1003}) {
    HostTensor x = uniform({6, columns}, 1), y = uniform({6, columns}, 2);
    auto before = [](GraphBuilder &b, Value x, Value y) {
      return b.add(b.scale(x, 0.125), y);
    };
    auto after = [](GraphBuilder &b, Value p, Value y) {
      return b.make<graph::GeluOp>(b.add(b.scale(p, 3), y), /*tanh_form=*/false);
    };
    std::vector<HostTensor> fused = run(
        [&](GraphBuilder &b, auto v) {
          Value p = softmax(b, before(b, v[0], v[1]));
          return Values{p, after(b, p, v[1])};
        },
        {x, y});
    HostTensor z =
        run([&](GraphBuilder &b, auto v) { return Values{before(b, v[0], v[1])}; },
            {x, y})[0];
    HostTensor p =
        run([&](GraphBuilder &b, auto v) { return Values{softmax(b, v[0])}; }, {z})[0];
    HostTensor g = run(
        [&](GraphBuilder &b, auto v) { return Values{after(b, v[0], v[1])}; }, {p, y})[0];
    expectSameBits(fused, {p, g});
  }
}

TEST(RegionBits, ColumnSumsAloneAndTogether) {
  HostTensor x = uniform({300, 100}, 1), y = uniform({300, 100}, 2);
  std::vector<HostTensor> fused = run(
      [](GraphBuilder &b, auto v) {
        Value product = b.mul(v[0], v[1]);
        return Values{b.sum(v[0], {0}, false), b.sum(product, {0}, false), product};
      },
      {x, y});
  HostTensor sum = run(
      [](GraphBuilder &b, auto v) { return Values{b.sum(v[0], {0}, false)}; }, {x})[0];
  HostTensor sumOfProduct =
      run([](GraphBuilder &b, auto v) { return Values{b.sum(v[0], {0}, false)}; },
          {fused[2]})[0];
  expectSameBits({fused[0], fused[1]}, {sum, sumOfProduct});
}

TEST(RegionBits, LongAndShortBodiesReduceInTheSameOrder) {
  // An expensive body walks vector by vector, a short one four at a time.
  for (int64_t columns : {48, 57, 64, 112, 121, 1003}) {
    HostTensor x = uniform({20, columns});
    std::vector<HostTensor> both = run(
        [](GraphBuilder &b, auto v) {
          Value y = v[0];
          for (int i = 0; i < 4; ++i)
            y = b.exp(b.scale(y, 0.1));
          return Values{y, b.sum(y, {1}, false)};
        },
        {x});
    HostTensor alone =
        run([](GraphBuilder &b, auto v) { return Values{b.sum(v[0], {1}, false)}; },
            {both[0]})[0];
    expectSameBits({both[1]}, {alone});
  }
}

TEST(RegionBits, ChannelSumsWithAndWithoutOtherWork) {
  HostTensor x = uniform({4, 3, 7, 7});
  std::vector<HostTensor> both = run(
      [](GraphBuilder &b, auto v) {
        Value y = b.exp(v[0]);
        return Values{y, b.sum(y, {0, 2, 3}, false)};
      },
      {x});
  HostTensor alone =
      run([](GraphBuilder &b, auto v) { return Values{b.sum(v[0], {0, 2, 3}, false)}; },
          {both[0]})[0];
  expectSameBits({both[1]}, {alone});
}
