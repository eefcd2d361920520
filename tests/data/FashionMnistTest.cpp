// The files of Debian's package dataset-fashion-mnist.

#include "runtime/data/DataSource.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

using namespace sluice;

namespace {

const std::string folder = "/usr/share/datasets/fashion-mnist/";

TEST(FashionMnist, DeliversScaledImagesAndLabels) {
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  std::vector<std::string> specs = {
      "images=idx:" + folder + "t10k-images-idx3-ubyte.gz,scale=1/255,mean=0.5,std=0.25",
      "labels=idx:" + folder + "t10k-labels-idx1-ubyte.gz"};
  std::vector<InputSpec> inputs = {{"images", DType::f32, {64, 1, 28, 28}},
                                   {"labels", DType::i64, {64}}};
  auto source = openData(specs, inputs, {.shuffle = true, .seed = 3});
  ASSERT_TRUE(source.ok()) << source.status().message;
  EXPECT_EQ((*source)->size(), 10000);

  std::vector<int64_t> perClass(10, 0);
  double low = 1e9, high = -1e9;
  Batch batch;
  for (int64_t seen = 0; seen < 10000; seen += batch.count) {
    ASSERT_TRUE((*source)->next(batch).ok());
    ASSERT_EQ(batch.count, std::min<int64_t>(64, 10000 - seen));
    const auto *images = static_cast<const float *>(batch.data[0]);
    const auto *labels = static_cast<const int64_t *>(batch.data[1]);
    for (int64_t i = 0; i < batch.count * 28 * 28; ++i) {
      low = std::min(low, double(images[i]));
      high = std::max(high, double(images[i]));
    }
    for (int64_t i = 0; i < batch.count; ++i)
      ++perClass[size_t(labels[i])];
  }
  EXPECT_EQ(perClass, std::vector<int64_t>(10, 1000));
  EXPECT_FLOAT_EQ(float(low), -2);
  EXPECT_FLOAT_EQ(float(high), 2);
}

} // namespace
