#include "TestMain.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

namespace sluice::test {
int mutationCount = 3000;
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--mutations=", 12) == 0)
      sluice::test::mutationCount = std::atoi(argv[i] + 12);
  return RUN_ALL_TESTS();
}
