#include "runtime/comm/SumTree.h"

#include "tests/comm/Ranks.h"

namespace sluice::test {

template <class T> static void expectTree(SumType type) {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 64}) {
    for (size_t count : {size_t(1), size_t(7), size_t(64), sumBlockBytes / sizeof(T)}) {
      std::vector<std::vector<T>> values;
      std::vector<const uint8_t *> sources;
      for (int r = 0; r < ranks; ++r)
        values.push_back(valuesOf<T>(r, count));
      for (auto &list : values)
        sources.push_back(reinterpret_cast<const uint8_t *>(list.data()));
      std::vector<T> sum(count);
      sumBlock(sources.data(), ranks, reinterpret_cast<uint8_t *>(sum.data()),
               count * sizeof(T), type);
      EXPECT_EQ(sum, treeSum<T>([&](int r) { return values[r]; }, ranks))
          << ranks << " ranks, " << count << " elements";
    }
  }
}

TEST(SumTree, IsTheBinomialTreeForEveryNumberOfRanks) {
  expectTree<float>(SumType::f32);
  expectTree<double>(SumType::f64);
  expectTree<uint64_t>(SumType::i64);
}

// The comparison above could pass with any order if the values did not tell orders apart.
TEST(SumTree, ValuesTellOrdersApart) {
  auto of = [](int r) { return valuesOf<float>(r, 64); };
  std::vector<float> inOrder = of(0);
  for (int r = 1; r < 4; ++r)
    for (size_t i = 0; i < inOrder.size(); ++i)
      inOrder[i] += of(r)[i];
  EXPECT_NE(inOrder, treeSum<float>(of, 4));
}

} // namespace sluice::test
