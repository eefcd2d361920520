#include "runtime/comm/Agree.h"

#include "tests/comm/Ranks.h"

namespace sluice::test {

static Status show(Communicator &comm, std::vector<uint8_t> hash) {
  return agree(comm, std::as_bytes(std::span(hash)), "plan");
}

TEST(Agree, EqualHashesAgree) {
  onRanks(4, [](Communicator &comm) {
    EXPECT_OK(show(comm, std::vector<uint8_t>(32, 7)));
    EXPECT_OK(show(comm, {}));
  });
}

TEST(Agree, RanksThatDifferAreNamedOnAll) {
  onRanks(4, [](Communicator &comm) {
    std::vector<uint8_t> hash(32, 0xab);
    if (comm.rank() == 1 || comm.rank() == 3)
      hash[7] = 0;
    Status status = show(comm, hash);
    EXPECT_EQ(status.code, StatusCode::refused);
    EXPECT_EQ(
        status.message,
        "ranks 1 and 3 of 4 have another plan than rank 0: ababababababab00... where "
        "rank 0 has abababababababab...; give every rank the same plan");
    // All know, so the group can go on to end in order.
    EXPECT_OK(comm.barrier({"start", 0, "end"}));
  });
}

TEST(Agree, ALongerHashIsAnotherOne) {
  onRanks(2, [](Communicator &comm) {
    std::vector<uint8_t> hash(comm.rank() == 0 ? 4 : 5, 0);
    EXPECT_EQ(show(comm, hash).message,
              "rank 1 of 2 has another plan than rank 0: 0000000000 where rank 0 has "
              "00000000; give every rank the same plan");
  });
}

TEST(Agree, TooLongHashesAreRefused) {
  auto ends = joinAll(2);
  EXPECT_EQ(show(*ends[0], std::vector<uint8_t>(65)).code, StatusCode::usage);
}

} // namespace sluice::test
