#include "tests/kernels/HalfFormats.h"
#include "tests/kernels/KernelCase.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace sluice::test {
namespace {

using Shape = std::vector<int64_t>;

Shape contiguous(const Shape &dims) {
  Shape s(dims.size());
  int64_t size = 1;
  for (size_t i = dims.size(); i-- > 0; size *= dims[i])
    s[i] = size;
  return s;
}

int64_t sizeOf(const Shape &dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

/// Calls body(index vector) over a shape in row-major order.
template <typename Body> void forEachIndex(const Shape &dims, Body body) {
  Shape index(dims.size());
  for (int64_t i = 0, n = sizeOf(dims); i < n; ++i) {
    int64_t rest = i;
    for (size_t d = dims.size(); d-- > 0;) {
      index[d] = rest % dims[d];
      rest /= dims[d];
    }
    body(index);
  }
}

int64_t dot(const Shape &a, const Shape &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), int64_t{0});
}

Bytes randomBytes(int64_t n) {
  std::mt19937 rng(n);
  Bytes b(n);
  for (auto &v : b)
    v = rng();
  return b;
}

/// Copies with the kernel into poison of `outCount` elements and compares every byte.
void checkCopy(const Shape &dims, const Shape &in, int64_t inOffset, int64_t inCount,
               const Shape &out, int64_t outOffset, int64_t outCount) {
  for (int64_t size : {1, 2, 4, 8}) {
    SCOPED_TRACE(size);
    Bytes from = randomBytes(inCount * size), before = poisoned(outCount * size);
    Bytes expected = before;
    forEachIndex(dims, [&](const Shape &i) {
      std::memcpy(&expected[(outOffset + dot(i, out)) * size],
                  &from[(inOffset + dot(i, in)) * size], size);
    });
    CopyParams p = planCopy(size, dims.size(), dims.data(), in.data(), inOffset,
                            out.data(), outOffset);
    auto after =
        runEverywhere({"copy_strided", packParams(p), copyUnits(p), {from, before}});
    EXPECT_EQ(after[1], expected);
  }
}

/// A transpose by permutation.
void checkTranspose(const Shape &dims, const Shape &permutation) {
  Shape strides = contiguous(dims), to, in;
  for (int64_t p : permutation) {
    to.push_back(dims[p]);
    in.push_back(strides[p]);
  }
  checkCopy(to, in, 0, sizeOf(dims), contiguous(to), 0, sizeOf(dims));
}

TEST(Copy, Transposes) {
  checkTranspose({33, 50}, {1, 0});
  checkTranspose({2, 35, 3, 8}, {0, 2, 1, 3});
  checkTranspose({2, 5, 3, 17}, {0, 2, 3, 1});
  checkTranspose({4, 3, 17, 18}, {3, 0, 2, 1});
  checkTranspose({2, 3, 2, 3, 2, 3, 2, 3}, {7, 5, 3, 1, 6, 4, 2, 0});
}

TEST(Copy, LargeTransposesAndRuns) {
  checkTranspose({300, 200}, {1, 0});
  checkTranspose({40000}, {0});
  checkTranspose({}, {});
}

TEST(Copy, SliceWithStepsBothWays) {
  // x[10][12] rows 9, 7, 5 and columns 1, 4, 7
  checkCopy({3, 3}, {-24, 3}, 9 * 12 + 1, 120, {3, 1}, 0, 9);
  checkCopy({5}, {-1}, 4, 5, {1}, 0, 5);
}

TEST(Copy, BroadcastAndConcatPiece) {
  checkCopy({4, 30}, {0, 1}, 0, 30, {30, 1}, 0, 120);
  checkCopy({4, 30}, {1, 0}, 0, 4, {30, 1}, 0, 120);
  checkCopy({4, 5}, {5, 1}, 0, 20, {11, 1}, 3, 44); // columns 3..7 of [4][11]
  checkCopy({}, {}, 2, 3, {}, 1, 2);
}

TEST(Copy, Empty) { checkCopy({4, 0, 3}, {3, 3, 1}, 0, 12, {0, 3, 1}, 0, 5); }

TEST(Copy, LaunchBelowTheOperandIsRefused) {
  int64_t dims[] = {5}, in[] = {-1}, out[] = {1};
  CopyParams p = planCopy(4, 1, dims, in, 3, out, 0);
  std::vector<OperandExtent> extents;
  std::string why;
  auto params = packParams(p);
  EXPECT_FALSE(describeBuiltinLaunch("copy_strided", params.data(), params.size(),
                                     copyUnits(p), extents, why));
  EXPECT_NE(why.find("below its start"), std::string::npos) << why;
}

TEST(Fill, EverySize) {
  for (int64_t size : {1, 2, 4, 8})
    for (int64_t count : {0, 1, 100}) {
      FillParams p{size, 0x0102030405060708, count, 7};
      auto out = runEverywhere(
          {"fill", packParams(p), fillUnits(p), {poisoned(count * size)}})[0];
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], 8 - i % size);
    }
}

Bytes indexBytes(const std::vector<int64_t> &v, int64_t bytes) {
  return bytes == 8 ? toBytes(v) : toBytes(std::vector<int32_t>(v.begin(), v.end()));
}

const std::vector<int64_t> kIndices = {0, 3, -1,         4,           -6, 1,
                                       5, 3, 2000000000, -2000000000, 0};

int64_t resolve(int64_t i, int64_t size) {
  i = i < 0 ? i + size : i;
  return i >= 0 && i < size ? i : -1;
}

TEST(Gather, RowsWrapAndMissingRowsAreZero) {
  for (int64_t size : {1, 2, 4, 8})
    for (int64_t width : {4, 8})
      for (int64_t inner : {0, 1, 9}) {
        GatherParams p{size, width, 3, 5, inner, int64_t(kIndices.size()), 4};
        Bytes x = randomBytes(3 * 5 * inner * size);
        Bytes expected(3 * p.count * inner * size);
        for (int64_t row = 0; row < 3 * p.count; ++row)
          if (int64_t i = resolve(kIndices[row % p.count], 5); i >= 0 && inner)
            std::memcpy(&expected[row * inner * size],
                        &x[(row / p.count * 5 + i) * inner * size], inner * size);
        auto after =
            runEverywhere({"gather",
                           packParams(p),
                           gatherUnits(p),
                           {x, indexBytes(kIndices, width), poisoned(expected.size())}});
        EXPECT_EQ(after[2], expected);
      }
}

TEST(ScatterAdd, IsTheAdjointOfGatherInOrder) {
  std::mt19937 rng(2);
  for (auto [inner, unitRows] :
       {std::pair<int64_t, int64_t>{1, 0}, {40, 0}, {40, 2}, {3, 5}})
    for (int64_t type : {format::kF32, format::kBf16, format::kF16}) {
      bool accumulate = type != format::kBf16;
      ScatterAddParams p{8,          2,  5,    inner,   int64_t(kIndices.size()),
                         accumulate, 16, type, unitRows};
      Bytes bytes = stored(randomFloats(rng, 2 * p.count * inner), type);
      auto updates = loaded(bytes, type);
      auto y = randomFloats(rng, 2 * 5 * inner);
      std::vector<float> expected = accumulate ? y : std::vector<float>(y.size());
      for (int64_t row = 0; row < 2 * p.count; ++row)
        if (int64_t i = resolve(kIndices[row % p.count], 5); i >= 0)
          for (int64_t j = 0; j < inner; ++j)
            expected[(row / p.count * 5 + i) * inner + j] += updates[row * inner + j];
      auto after = runEverywhere({"scatter_add_f32",
                                  packParams(p),
                                  scatterAddUnits(p),
                                  {toBytes(kIndices), bytes, toBytes(y)}});
      EXPECT_EQ(fromBytes<float>(after[2]), expected);
    }
}

/// Aligns a shape at the last of the kernel's dims.
void setDims(int64_t (&to)[kMaxRank], const Shape &from, int64_t missing) {
  for (int64_t i = 0; i < kMaxRank; ++i) {
    int64_t at = i - (kMaxRank - int64_t(from.size()));
    to[i] = at < 0 ? missing : from[at];
  }
}

struct ElementsCase {
  Shape data, index;
  int64_t axis;
};
const ElementsCase kElementCases[] = {{{4, 5, 6}, {4, 5, 9}, 2},
                                      {{4, 5, 6}, {4, 7, 6}, 1},
                                      {{4, 5, 6}, {9, 3, 2}, 0},
                                      {{5}, {11}, 0}};

std::vector<int64_t> someIndices(int64_t count, int64_t size) {
  std::mt19937 rng(count);
  std::vector<int64_t> v(count);
  for (auto &i : v)
    i = int64_t(rng() % (2 * size + 2)) - size - 1;
  return v;
}

TEST(GatherElements, AlongEveryAxis) {
  for (const auto &c : kElementCases)
    for (int64_t size : {1, 4, 8}) {
      GatherElementsParams p;
      p.elementBytes = size;
      p.axis = kMaxRank - int64_t(c.data.size()) + c.axis;
      p.axisSize = c.data[c.axis];
      Shape strides = contiguous(c.data);
      setDims(p.dims, c.index, 1);
      setDims(p.xStride, strides, 0);
      p.unitRows = 2;
      auto indices = someIndices(sizeOf(c.index), p.axisSize);
      Bytes x = randomBytes(sizeOf(c.data) * size), expected(indices.size() * size);
      int64_t n = 0;
      forEachIndex(c.index, [&](Shape i) {
        i[c.axis] = resolve(indices[n], p.axisSize);
        if (i[c.axis] >= 0)
          std::memcpy(&expected[n * size], &x[dot(i, strides) * size], size);
        ++n;
      });
      auto after = runEverywhere({"gather_elements",
                                  packParams(p),
                                  gatherElementsUnits(p),
                                  {x, toBytes(indices), poisoned(expected.size())}});
      EXPECT_EQ(after[2], expected);
    }
}

float combine(const std::string &reduction, float y, float update) {
  if (reduction == "_add_f32")
    return y + update;
  if (reduction == "_mul_f32")
    return y * update;
  if (reduction.empty())
    return update;
  return reduction == "_max_f32" ? std::max(y, update) : std::min(y, update);
}

TEST(ScatterElements, LastWriteWinsAndReductionsKeepOrder) {
  std::mt19937 rng(9);
  for (const auto &c : kElementCases)
    for (std::string reduction : {"", "_add_f32", "_mul_f32", "_max_f32", "_min_f32"}) {
      ScatterElementsParams p;
      p.axis = kMaxRank - int64_t(c.data.size()) + c.axis;
      p.axisSize = c.data[c.axis];
      Shape strides = contiguous(c.data);
      setDims(p.dims, c.index, 1);
      setDims(p.yStride, strides, 0);
      auto indices = someIndices(sizeOf(c.index), p.axisSize);
      auto y = randomFloats(rng, sizeOf(c.data)),
           updates = randomFloats(rng, indices.size());
      auto expected = y;
      int64_t n = 0;
      forEachIndex(c.index, [&](Shape i) {
        i[c.axis] = resolve(indices[n], p.axisSize);
        if (i[c.axis] >= 0) {
          float &to = expected[dot(i, strides)];
          to = combine(reduction, to, updates[n]);
        }
        ++n;
      });
      auto after = runEverywhere({"scatter_elements" + reduction,
                                  packParams(p),
                                  scatterElementsUnits(p),
                                  {toBytes(indices), toBytes(updates), toBytes(y)}});
      EXPECT_EQ(fromBytes<float>(after[2]), expected);
    }
}

TEST(ArgReduce, TiesAndNan) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = {1, 3, 3, 0, 0, 5, 5, 5, nan, 9, nan, 2};
  auto run = [&](bool minimum, bool last) {
    ArgReduceParams p{3, 4, 1, 4, 1, 0, minimum, last, 2};
    auto after = runEverywhere(
        {"arg_reduce_f32", packParams(p), argReduceUnits(p), {toBytes(x), poisoned(24)}});
    return fromBytes<int64_t>(after[1]);
  };
  EXPECT_EQ(run(false, false), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(run(false, true), (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(run(true, false), (std::vector<int64_t>{3, 0, 0}));
  EXPECT_EQ(run(true, true), (std::vector<int64_t>{3, 0, 2}));
}

TEST(ArgReduce, IntegersThatFloatsCannotTellApart) {
  int64_t big = int64_t(1) << 53;
  std::vector<int64_t> x = {big, big + 1, -big - 1, -big};
  ArgReduceParams p{2, 2, 1, 2, 1, 0, 0, 0, 1};
  auto after = runEverywhere(
      {"arg_reduce_i64", packParams(p), argReduceUnits(p), {toBytes(x), poisoned(16)}});
  EXPECT_EQ(fromBytes<int64_t>(after[1]), (std::vector<int64_t>{1, 1}));
}

TEST(ArgReduce, AlongAMiddleAxis) {
  std::mt19937 rng(1);
  auto x = randomFloats(rng, 2 * 7 * 5);
  ArgReduceParams p{2, 7, 5, 35, 5, 1, 0, 0, 3};
  auto after = runEverywhere(
      {"arg_reduce_f32", packParams(p), argReduceUnits(p), {toBytes(x), poisoned(80)}});
  auto y = fromBytes<int64_t>(after[1]);
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t j = 0; j < 5; ++j)
      for (int64_t i = 0; i < 7; ++i)
        EXPECT_LE(x[o * 35 + i * 5 + j], x[o * 35 + y[o * 5 + j] * 5 + j]);
}

TEST(Cumsum, ExclusiveAndReverse) {
  std::mt19937 rng(1);
  for (int64_t inner : {1, 3})
    for (bool exclusive : {false, true})
      for (bool reverse : {false, true}) {
        CumsumParams p{2, 6, inner, exclusive, reverse, 1};
        auto x = randomFloats(rng, 12 * inner);
        std::vector<double> expected(x.size());
        for (int64_t o = 0; o < 2; ++o)
          for (int64_t i = 0; i < 6; ++i)
            for (int64_t k = 0; k < 6; ++k)
              for (int64_t j = 0; j < inner; ++j)
                if ((k == i && !exclusive) || (reverse ? k > i : k < i))
                  expected[(o * 6 + i) * inner + j] += x[(o * 6 + k) * inner + j];
        Bytes before = poisoned(x.size() * 4);
        auto after = runEverywhere(
            {"cumsum_f32", packParams(p), cumsumUnits(p), {toBytes(x), before}});
        expectNear(expected, before, after[1], 1e-5);
      }
}

TEST(Cumsum, IntegersWrap) {
  int64_t most = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> x = {most, 1, 5, -7};
  CumsumParams p{2, 2, 1, 0, 0, 1};
  auto after = runEverywhere(
      {"cumsum_i64", packParams(p), cumsumUnits(p), {toBytes(x), poisoned(32)}});
  EXPECT_EQ(fromBytes<int64_t>(after[1]),
            (std::vector<int64_t>{most, std::numeric_limits<int64_t>::min(), 5, -2}));
}

} // namespace
} // namespace sluice::test
