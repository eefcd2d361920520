// Jobs of an MPI launcher on this machine, with more ranks than cores.

#include "runtime/comm/MpiCommunicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <sys/wait.h>
#include <vector>

namespace sluice::test {

TEST(Mpi, AShimThatIsMissingIsAClearRefusal) {
  Status status = openMpi({.comm = {}, .shim = "no/such/libsluice_mpi.so"}).status();
  EXPECT_EQ(status.code, StatusCode::cannotRunHere);
  EXPECT_NE(status.message.find("MPI is not available: no/such/libsluice_mpi.so"),
            std::string::npos)
      << status.message;
  EXPECT_NE(status.message.find("or use '--comm local'"), std::string::npos);
}

#ifdef SLUICE_MPIRUN

class MpiJob : public testing::Test {
protected:
  void SetUp() override {
    run(std::string(SLUICE_MPIRUN) + " --version");
    if (output.find("Open MPI") == std::string::npos &&
        output.find("OpenRTE") == std::string::npos)
      GTEST_SKIP() << "the launcher is not Open MPI's: " << output;
  }
  void start(int ranks, const std::string &what) {
    run(std::string(SLUICE_MPIRUN) +
        " --allow-run-as-root --oversubscribe --enable-recovery -n " +
        std::to_string(ranks) + " " + SLUICE_MPI_RANKS + " " + what);
  }
  /// The lines of ranks, in their order.
  std::vector<std::string> lines() const {
    std::vector<std::string> list;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);)
      if (line.starts_with("rank "))
        list.push_back(line);
    std::ranges::sort(list);
    return list;
  }
  static std::vector<std::string> all(int ranks, const std::string &text) {
    std::vector<std::string> list;
    for (int r = 0; r < ranks; ++r)
      list.push_back("rank " + std::to_string(r) + ": " + text);
    return list;
  }

  /// Without a launcher, but with what one sets.
  void startAlone(const std::string &environment, const std::string &what) {
    run("env " + environment + " " + SLUICE_MPI_RANKS + " " + what);
  }

  std::string output;
  int exitCode = -1;

private:
  void run(const std::string &command) {
    output.clear();
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    ASSERT_TRUE(pipe);
    std::array<char, 4096> buffer;
    while (size_t bytes = fread(buffer.data(), 1, buffer.size(), pipe))
      output.append(buffer.data(), bytes);
    int status = pclose(pipe);
    exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(MpiJob, ALauncherThatMpiDoesNotKnowIsSaid) {
  startAlone("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2", "collectives");
  EXPECT_NE(output.find("the launcher has started 4 processes ('SLURM_STEP_NUM_TASKS'), "
                        "but MPI sees one"),
            std::string::npos)
      << output;
  startAlone("SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", "collectives");
  EXPECT_EQ(output.find("the launcher has started"), std::string::npos) << output;
  EXPECT_NE(output.find("rank 0"), std::string::npos) << "it has begun";
}

TEST_F(MpiJob, GivesTheBitsOfTheTree) {
  for (int ranks : {2, 3, 4}) {
    start(ranks, "collectives");
    EXPECT_EQ(lines(), all(ranks, "fine")) << output;
    EXPECT_EQ(exitCode, 0) << output;
  }
}

TEST_F(MpiJob, AKilledRankIsNamedByTheOthers) {
  start(3, "kill");
  EXPECT_EQ(lines(), all(2, "rank 2 of 3 did not arrive at all_reduce 'grad/w' (program "
                            "'step', update 42) within 2 s"))
      << output;
}

TEST_F(MpiJob, AnAbortReachesTheOthers) {
  start(3, "abort");
  EXPECT_EQ(lines(), all(3, "rank 2 of 3 gave up: the data ended")) << output;
}

TEST_F(MpiJob, ARankThatLeftIsNamed) {
  start(3, "leave");
  std::vector<std::string> expected =
      all(2, "rank 2 of 3 left before all_reduce 'grad/w' (program 'step', update 42)");
  expected.push_back("rank 2: left");
  EXPECT_EQ(lines(), expected) << output;
}

TEST_F(MpiJob, AnotherCollectiveIsNamedWithItsRank) {
  start(2, "mismatch");
  EXPECT_EQ(lines(), all(2, "rank 1 of 2 is at all_reduce 'grad/b' (program 'step', "
                            "update 42) number 3 with 400000 bytes, but rank 0 at "
                            "all_reduce 'grad/w' (program 'step', update 42) number 3 "
                            "with 400000 bytes: ranks must run the same plan in step"))
      << output;
}

#else

TEST(MpiJob, NeedsMpi) {
  GTEST_SKIP() << "no MPI was found when this was configured (libopenmpi-dev, "
                  "openmpi-bin)";
}

#endif

} // namespace sluice::test
