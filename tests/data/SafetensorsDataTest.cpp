#include "runtime/Safetensors.h"
#include "runtime/data/StoredArray.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace sluice;
using test::TemporaryFolder;

namespace {

TEST(SafetensorsData, FindsTheTensorByName) {
  TemporaryFolder folder;
  std::vector<float> x = {1, 2, 3, 4};
  std::vector<TensorToWrite> tensors = {{"x", DType::f32, {2, 2}, x.data(), 16}};
  ASSERT_TRUE(writeSafetensors(folder.path("f"), tensors, {}).ok());
  auto array = readSafetensorsMember(folder.path("f"), "x");
  ASSERT_TRUE(array.ok()) << array.status().message;
  EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(array->data, x.data(), 16), 0);

  auto missing = readSafetensorsMember(folder.path("f"), "y");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(without(missing.status().message, folder),
            "'f' has no tensor 'y'; it has 'x'");
}

} // namespace
