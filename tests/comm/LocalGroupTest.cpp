#include "tests/comm/Ranks.h"

namespace sluice::test {

static const CallLabel label{"step", 41, "grad/w", 3};

template <class T> static void expectAllReduce(SumType type) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (size_t count : {0, 1, 5, 1000, 10007}) {
      std::vector<T> expected =
          treeSum<T>([&](int r) { return valuesOf<T>(r, count); }, ranks);
      onRanks(ranks, [&](Communicator &comm) {
        std::vector<T> values = valuesOf<T>(comm.rank(), count);
        // Each rank cuts its message in another way.
        std::vector<Part> parts = cut(values, 1 + 7 * comm.rank());
        Status status = comm.allReduce(parts, type, label);
        EXPECT_TRUE(status.ok()) << status.message;
        EXPECT_EQ(values, expected) << ranks << " ranks, " << count << " elements";
      });
    }
  }
}

TEST(LocalGroup, AllReduceGivesTheTreesBits) {
  expectAllReduce<float>(SumType::f32);
  expectAllReduce<double>(SumType::f64);
  expectAllReduce<uint64_t>(SumType::i64);
}

} // namespace sluice::test
