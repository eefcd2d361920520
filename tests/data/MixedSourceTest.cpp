#include "runtime/data/MixedSource.h"
#include "runtime/data/DataSource.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

#include <map>

using namespace sluice;
using test::TemporaryFolder;

namespace {

/// `count` samples from `first` on, each of one element.
std::unique_ptr<BatchSource> numbers(const TemporaryFolder &folder, int first, int count,
                                     int64_t batch, bool shuffle) {
  std::string text = "a,b\n";
  for (int i = first; i < first + count; ++i)
    text += std::to_string(i) + ",0\n";
  std::string path = folder.write("n" + std::to_string(first) + ".csv", text);
  std::vector<std::string> specs = {"x=csv:" + path + ",columns=1"};
  DataOptions options;
  options.shuffle = shuffle;
  auto source = openData(specs, {{"x", DType::f32, {batch, 1}}}, options);
  EXPECT_TRUE(source.ok()) << source.status().message;
  return std::move(*source);
}

MixedSource mixed(const TemporaryFolder &folder, bool shuffle, uint64_t seed = 3) {
  std::vector<MixedSource::Part> parts;
  parts.push_back({numbers(folder, 0, 10, 4, shuffle), 1, 4});
  parts.push_back({numbers(folder, 100, 6, 3, shuffle), 0, 3});
  return MixedSource(std::move(parts), shuffle, seed);
}

struct Seen {
  uint32_t bucket;
  int64_t firstSample;
  std::vector<int> samples;
  bool operator==(const Seen &) const = default;
};

std::vector<Seen> take(MixedSource &source, int batches) {
  std::vector<Seen> list;
  Batch batch;
  for (int b = 0; b < batches; ++b) {
    Status status = source.next(batch);
    EXPECT_TRUE(status.ok()) << status.message;
    const auto *x = static_cast<const float *>(batch.data[0]);
    list.push_back({batch.bucket, batch.firstSample, {}});
    for (int64_t i = 0; i < batch.count; ++i)
      list.back().samples.push_back(int(x[i]));
  }
  return list;
}

TEST(MixedSource, PartsFollowEachOtherInOrder) {
  TemporaryFolder folder;
  MixedSource source = mixed(folder, false);
  EXPECT_EQ(source.size(), 16);
  EXPECT_EQ(source.batches(1).all, 5);
  EXPECT_EQ(source.batches(1).full, 4);
  EXPECT_EQ(source.batches(1).restSamples, 2);
  ASSERT_TRUE(source.seek(0).ok());
  std::vector<Seen> expected = {{1, 0, {0, 1, 2, 3}},     {1, 4, {4, 5, 6, 7}},
                                {1, 8, {8, 9}},           {0, 10, {100, 101, 102}},
                                {0, 13, {103, 104, 105}}, {1, 16, {0, 1, 2, 3}}};
  EXPECT_EQ(take(source, 6), expected);
}

TEST(MixedSource, AnEpochHasEverySampleOnceAndEpochsDiffer) {
  TemporaryFolder folder;
  MixedSource source = mixed(folder, true);
  ASSERT_TRUE(source.seek(0).ok());
  std::vector<std::vector<Seen>> epochs = {take(source, 5), take(source, 5)};
  for (const auto &epoch : epochs) {
    std::map<int, int> counts;
    for (const Seen &batch : epoch)
      for (int sample : batch.samples) {
        ++counts[sample];
        EXPECT_EQ(batch.bucket, sample < 100 ? 1u : 0u);
      }
    EXPECT_EQ(counts.size(), 16u);
  }
  EXPECT_NE(epochs[0][0].samples, epochs[1][0].samples);
}

TEST(MixedSource, SeekGoesOnWhereAnUninterruptedRunWouldBe) {
  TemporaryFolder folder;
  MixedSource whole = mixed(folder, true);
  ASSERT_TRUE(whole.seek(0).ok());
  std::vector<Seen> all = take(whole, 12);
  for (size_t from = 0; from < all.size(); ++from) {
    MixedSource source = mixed(folder, true);
    ASSERT_TRUE(source.seek(all[from].firstSample).ok());
    std::vector<Seen> rest(all.begin() + static_cast<std::ptrdiff_t>(from), all.end());
    EXPECT_EQ(take(source, int(rest.size())), rest) << from;
  }
  EXPECT_NE(whole.seek(1).message.find("inside a batch"), std::string::npos);
}

TEST(FilledSamples, SmallerOnesAreFilledUpWhereTheInputSaysSo) {
  TemporaryFolder folder;
  std::string path = folder.write("short.csv", "a,b\n1,2\n3,4\n");
  std::vector<std::string> specs = {"x=csv:" + path + ",columns=1-2"};
  InputSpec input{"x", DType::i64, {2, 3}};
  EXPECT_FALSE(openData(specs, {input}, {}).ok());
  input.fill = -100;
  DataOptions options;
  options.shuffle = false;
  auto source = openData(specs, {input}, options);
  ASSERT_TRUE(source.ok()) << source.status().message;
  Batch batch;
  ASSERT_TRUE((*source)->next(batch).ok());
  const auto *x = static_cast<const int64_t *>(batch.data[0]);
  EXPECT_EQ(std::vector<int64_t>(x, x + 6),
            (std::vector<int64_t>{1, 2, -100, 3, 4, -100}));
}

} // namespace
