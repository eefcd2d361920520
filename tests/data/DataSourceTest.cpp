#include "runtime/data/DataSource.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

using namespace sluice;
using test::TemporaryFolder;

namespace {

/// A CSV of `rows` lines "i,10 i,i % 3".
std::string numbered(const TemporaryFolder &folder, int rows) {
  std::string text = "a,b,class\n";
  for (int i = 0; i < rows; ++i)
    text += std::to_string(i) + "," + std::to_string(10 * i) + "," +
            std::to_string(i % 3) + "\n";
  return folder.write("rows.csv", text);
}

std::vector<InputSpec> features(int64_t batch) {
  return {{"x", DType::f32, {batch, 2}}, {"y", DType::i64, {batch}}};
}

std::unique_ptr<DataSource> open(const std::vector<std::string> &specs,
                                 const std::vector<InputSpec> &inputs,
                                 const DataOptions &options = {}) {
  auto source = openData(specs, inputs, options);
  if (!source) // fails the test that asked
    throw std::runtime_error(source.status().message);
  return std::move(*source);
}

std::string errorOf(const TemporaryFolder &folder, const std::vector<std::string> &specs,
                    const std::vector<InputSpec> &inputs) {
  auto source = openData(specs, inputs, {});
  return source.ok() ? "" : without(source.status().message, folder);
}

/// The first feature, which is the row's number, of the next `count` samples; checks that
/// the other columns are of the same row.
std::vector<int> take(DataSource &source, size_t count) {
  std::vector<int> rows;
  Batch batch;
  while (rows.size() < count) {
    Status status = source.next(batch);
    EXPECT_TRUE(status.ok()) << status.message;
    if (!status.ok())
      return rows;
    const auto *x = static_cast<const float *>(batch.data[0]);
    const auto *y = static_cast<const int64_t *>(batch.data[1]);
    for (int64_t i = 0; i < batch.count; ++i) {
      int row = int(x[2 * i]);
      EXPECT_EQ(x[2 * i + 1], float(10 * row));
      EXPECT_EQ(y[i], row % 3);
      rows.push_back(row);
    }
  }
  return rows;
}

TEST(DataSource, ReadsInOrderWithoutShuffling) {
  TemporaryFolder folder;
  auto source = open({"csv:" + numbered(folder, 10) + ",columns=1-2,target=3"},
                     features(4), {.shuffle = false});
  Batch batch;
  std::vector<int64_t> counts, firsts;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(source->next(batch).ok());
    counts.push_back(batch.count);
    firsts.push_back(batch.firstSample);
    EXPECT_EQ(static_cast<const float *>(batch.data[0])[0],
              float(batch.firstSample % 10));
  }
  // The last batch of an epoch is short, and the next epoch begins with a new one.
  EXPECT_EQ(counts, (std::vector<int64_t>{4, 4, 2, 4, 4, 2}));
  EXPECT_EQ(firsts, (std::vector<int64_t>{0, 4, 8, 10, 14, 18}));
}

TEST(DataSource, EachEpochIsAnotherPermutation) {
  TemporaryFolder folder;
  auto source = open({"csv:" + numbered(folder, 50) + ",columns=1-2,target=3"},
                     features(7), {.seed = 5});
  std::vector<int> first = take(*source, 50), second = take(*source, 50), all(50);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(first, second);
  EXPECT_NE(first, all);
  for (auto *epoch : {&first, &second}) {
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, all);
  }
}

TEST(DataSource, ResumesAnywhereAsIfUninterrupted) {
  TemporaryFolder folder;
  std::string spec = "csv:" + numbered(folder, 23) + ",columns=1-2,target=3";
  auto whole = open({spec}, features(5), {.seed = 9});
  std::vector<int> rows = take(*whole, 3 * 23);
  for (int prefetch : {0, 1, 3}) {
    auto source = open({spec}, features(5), {.seed = 9, .prefetch = prefetch});
    std::mt19937 rng(3);
    for (int round = 0; round < 40; ++round) {
      size_t cursor = rng() % (2 * 23);
      ASSERT_TRUE(source->seek(int64_t(cursor)).ok());
      std::vector<int> resumed = take(*source, 23);
      for (size_t i = 0; i < 23; ++i)
        ASSERT_EQ(resumed[i], rows[cursor + i]) << "cursor " << cursor;
      EXPECT_EQ(source->sampleAt(int64_t(cursor)), rows[cursor]);
    }
  }
}

TEST(DataSource, BatchStaysValidWhileTheNextOnesAreRead) {
  TemporaryFolder folder;
  auto source = open({"csv:" + numbered(folder, 1000) + ",columns=1-2,target=3"},
                     features(10), {.shuffle = false, .prefetch = 1});
  Batch batch;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(source->next(batch).ok());
    std::this_thread::yield();
    for (int64_t k = 0; k < batch.count; ++k)
      ASSERT_EQ(static_cast<const float *>(batch.data[0])[2 * k], float(10 * i + k));
  }
}

TEST(DataSource, BuffersAreThoseOfMake) {
  TemporaryFolder folder;
  auto source = open({"csv:" + numbered(folder, 100) + ",columns=1-2,target=3"},
                     features(8), {.prefetch = 2});
  EXPECT_EQ(source->bufferBytes(), 3 * (8 * 2 * 4 + 8 * 8));
  std::vector<const void *> seen;
  Batch batch;
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(source->next(batch).ok());
    if (std::find(seen.begin(), seen.end(), batch.data[0]) == seen.end())
      seen.push_back(batch.data[0]);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(DataSource, WindowsOfATextAndTheTokensOneLater) {
  TemporaryFolder folder;
  std::string text = folder.write("t", "abcdefghijklm"); // ids 0 to 12
  std::vector<InputSpec> inputs = {{"tokens", DType::i64, {2, 4}},
                                   {"labels", DType::i64, {2, 4}}};
  auto source = open({"tokens=text:" + text, "labels=text:" + text + ",shift=1"}, inputs,
                     {.shuffle = false});
  EXPECT_EQ(source->size(), 3);
  Batch batch;
  ASSERT_TRUE(source->next(batch).ok());
  ASSERT_TRUE(source->next(batch).ok());
  ASSERT_EQ(batch.count, 1);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<const int64_t *>(batch.data[0])[i], 8 + i);
    EXPECT_EQ(static_cast<const int64_t *>(batch.data[1])[i], 9 + i);
  }
  // 12 tokens hold three windows, but not three with their labels.
  text = folder.write("t", "abcdefghijkl");
  EXPECT_EQ(
      open({"tokens=text:" + text, "labels=text:" + text + ",shift=1"}, inputs)->size(),
      2);
  EXPECT_EQ(open({"tokens=text:" + text + ",stride=1",
                  "labels=text:" + text + ",stride=1,shift=1"},
                 inputs)
                ->size(),
            8);
}

TEST(DataSource, SubRangesAndStandardizing) {
  TemporaryFolder folder;
  std::string file = numbered(folder, 10);
  auto source = open({"x=csv:" + file + ",columns=a,b,range=6:10,standardize=0:6",
                      "y=csv:" + file + ",columns=class,range=6:"},
                     features(4), {.shuffle = false});
  EXPECT_EQ(source->size(), 4);
  Batch batch;
  ASSERT_TRUE(source->next(batch).ok());
  const auto *x = static_cast<const float *>(batch.data[0]);
  double deviation = std::sqrt(35.0 / 12); // of 0 to 5
  EXPECT_FLOAT_EQ(x[0], float((6 - 2.5) / deviation));
  EXPECT_FLOAT_EQ(x[1], float((6 - 2.5) / deviation));
  EXPECT_EQ(static_cast<const int64_t *>(batch.data[1])[3], 0);
}

TEST(DataSource, ChannelsLastAndPerChannelScaling) {
  TemporaryFolder folder;
  // One image of 1 x 2 pixels and 3 channels: (1,2,3), (4,5,6).
  std::string path = folder.write("f", "1,2,3,4,5,6\n");
  auto source = open({"x=csv:" + path + ",columns=1-6,layout=hwc,mean=1,2,3,std=0.5"},
                     {{"x", DType::f32, {1, 3, 1, 2}}});
  Batch batch;
  ASSERT_TRUE(source->next(batch).ok());
  const auto *x = static_cast<const float *>(batch.data[0]);
  EXPECT_EQ(std::vector<float>(x, x + 6), (std::vector<float>{0, 6, 0, 6, 0, 6}));
}

TEST(DataSource, InputsWithoutBatchAreTheSameInEveryBatch) {
  TemporaryFolder folder;
  std::vector<InputSpec> inputs = features(4);
  inputs.push_back({"weights", DType::f32, {3}, false});
  std::string classes = folder.write("w.csv", "1,2,3\n");
  auto source = open({"csv:" + numbered(folder, 10) + ",columns=1-2,target=3",
                      "weights=csv:" + classes + ",columns=1-3"},
                     inputs, {.labelsInput = "y"});
  // A csv has rows: [1, 3] meets [3] by dropping the 1.
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(source->next(batch).ok());
    const auto *w = static_cast<const float *>(batch.data[2]);
    EXPECT_EQ(std::vector<float>(w, w + 3), (std::vector<float>{1, 2, 3}));
  }
}

/// A .npy of this format string and shape.
template <class T>
static std::string npy(const TemporaryFolder &folder, const std::string &name,
                       const char *type, const std::string &shape,
                       const std::vector<T> &values) {
  std::string header = std::string("{'descr': '") + type +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += char(header.size() & 0xff);
  text += char(header.size() >> 8);
  text += header;
  text.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
  return folder.write(name, text);
}

TEST(DataSource, SamplesOfTheirOwnLengthsAreFilledUp) {
  TemporaryFolder folder;
  std::string lengths = npy<int64_t>(folder, "lengths.npy", "<i8", "3,", {2, 3, 1});
  std::string rows =
      npy<int32_t>(folder, "rows.npy", "<i4", "3,3,", {1, 2, 99, 3, 4, 5, 6, 99, 99});
  std::string joined =
      npy<int32_t>(folder, "joined.npy", "<i4", "6,", {1, 2, 3, 4, 5, 6});
  std::vector<InputSpec> inputs = {{"x", DType::i32, {2, 4}}};
  inputs[0].fill = -1;
  for (const std::string &file : {rows, joined}) {
    auto source = open({"x=npy:" + file + ",lengths=" + lengths}, inputs, {false});
    Batch batch;
    ASSERT_TRUE(source->next(batch).ok());
    const auto *x = static_cast<const int32_t *>(batch.data[0]);
    EXPECT_EQ(std::vector<int32_t>(x, x + 8),
              (std::vector<int32_t>{1, 2, -1, -1, 3, 4, 5, -1}));
    EXPECT_TRUE(std::ranges::equal(batch.given[0], std::vector<int64_t>{2, 3}));
    EXPECT_TRUE(std::ranges::equal(batch.samples, std::vector<int64_t>{0, 1}));
    ASSERT_TRUE(source->next(batch).ok());
    EXPECT_EQ(static_cast<const int32_t *>(batch.data[0])[0], 6);
    EXPECT_TRUE(std::ranges::equal(batch.given[0], std::vector<int64_t>{1}));
  }
  auto part =
      open({"x=npy:" + joined + ",lengths=" + lengths + ",range=1:3"}, inputs, {false});
  Batch batch;
  ASSERT_TRUE(part->next(batch).ok());
  EXPECT_EQ(static_cast<const int32_t *>(batch.data[0])[0], 3);
}

TEST(DataSource, EachLengthGoesWhereItFits) {
  TemporaryFolder folder;
  std::string lengths = npy<int64_t>(folder, "l.npy", "<i8", "4,", {2, 4, 3, 1});
  std::string joined =
      npy<int32_t>(folder, "x.npy", "<i4", "10,", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::vector<bool> taken;
  auto columns = [&](int64_t length) {
    std::vector<InputSpec> inputs = {{"x", DType::i32, {2, length}}};
    inputs[0].fill = -1;
    std::vector<std::string> specs = {"x=npy:" + joined + ",lengths=" + lengths};
    return *openColumns(specs, inputs, {});
  };
  EXPECT_EQ(takeFitting(columns(2), taken), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(without(firstLeft(columns(2), taken), folder),
            "sample 1 of 'x.npy' has the length 4");
  std::vector<Column> large = columns(4);
  std::vector<int64_t> rest = takeFitting(large, taken);
  EXPECT_EQ(rest, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(firstLeft(large, taken), "");
  auto source = DataSource::make(large, {false}, rest);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->size(), 2);
  Batch batch;
  ASSERT_TRUE((*source)->next(batch).ok());
  const auto *x = static_cast<const int32_t *>(batch.data[0]);
  EXPECT_EQ(std::vector<int32_t>(x, x + 8),
            (std::vector<int32_t>{2, 3, 4, 5, 6, 7, 8, -1}));
  EXPECT_TRUE(std::ranges::equal(batch.samples, std::vector<int64_t>{1, 2}));
}

TEST(DataSource, LengthsThatDoNotMeetTheDataAreRefused) {
  TemporaryFolder folder;
  std::string x = npy<int32_t>(folder, "x.npy", "<i4", "6,", {0, 1, 2, 3, 4, 5});
  std::vector<InputSpec> inputs = {{"x", DType::i32, {2, 4}}};
  inputs[0].fill = 0;
  auto with = [&](const std::vector<int64_t> &values) {
    std::string l =
        npy<int64_t>(folder, "l.npy", "<i8", std::to_string(values.size()) + ",", values);
    return errorOf(folder, {"x=npy:" + x + ",lengths=" + l}, inputs);
  };
  EXPECT_EQ(with({2, 4}), "");
  EXPECT_EQ(with({2, 3}),
            "'--data x=npy:x.npy,lengths=l.npy': 'x.npy' has the shape [6]; with 2 "
            "lengths, the longest 3, together 5, input 'x' of shape [2, 4] takes one row "
            "for each, or all samples end to end");
  EXPECT_EQ(with({6, 0}), "'l.npy' has the length 0 for sample 1, expected at least 1");
  EXPECT_EQ(with({1, 5}), "sample 1 of 'x.npy' has the length 5, which fits no shape of "
                          "the plan; shorter samples need the spec's 'pad' or an ignored "
                          "label");
  std::string floats = npy<float>(folder, "f.npy", "<f4", "2,", {3, 3});
  EXPECT_EQ(errorOf(folder, {"x=npy:" + x + ",lengths=" + floats}, inputs),
            "'--data x=npy:x.npy,lengths=f.npy': 'f.npy' has the shape [2] of f32, "
            "expected one integer for each sample");
}

TEST(DataSource, ValuesThatDoNotFitAreNamed) {
  TemporaryFolder folder;
  std::string path = folder.write("f", "1,2,0\n3,4,0.5\n");
  auto source =
      open({"csv:" + path + ",columns=1-2,target=3"}, features(2), {.shuffle = false});
  Batch batch;
  for (int i = 0; i < 2; ++i) { // the same error until a seek
    Status status = source->next(batch);
    EXPECT_EQ(status.code, StatusCode::damaged);
    EXPECT_EQ(
        without(status.message, folder),
        "'f' has the value 0.500000 in sample 1, element 0, which input 'y' of type "
        "i64 cannot take");
  }
  ASSERT_TRUE(source->seek(0).ok());
  EXPECT_FALSE(source->next(batch).ok());
  EXPECT_EQ(source->seek(-1).code, StatusCode::usage);
}

TEST(DataSource, NotANumberInAnArrayIsRefused) {
  TemporaryFolder folder;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  std::vector<float> values = {1, 2, 3, NAN};
  std::string bytes =
      std::string("\x93NUMPY\x01\x00", 8) + char(header.size()) + '\0' + header;
  bytes.append(reinterpret_cast<char *>(values.data()), 16);
  auto source = open({"x=npy:" + folder.write("f", bytes)}, {{"x", DType::f32, {2, 2}}},
                     {.shuffle = false});
  Batch batch;
  EXPECT_EQ(without(source->next(batch).message, folder),
            "'f' has the value nan in sample 1, element 1, which input 'x' of type f32 "
            "cannot take");
}

TEST(DataSource, RefusesDataThatDoesNotMeetTheModel) {
  TemporaryFolder folder;
  std::string file = numbered(folder, 10);
  EXPECT_EQ(
      errorOf(folder, {"x=csv:" + file + ",columns=1-3", "y=csv:" + file + ",columns=3"},
              features(4)),
      "'--data x=csv:rows.csv,columns=1-3': input 'x' expects samples of shape [2], "
      "found [3] in 'rows.csv'");
  EXPECT_EQ(errorOf(folder, {"x=csv:" + file + ",columns=1-2"}, features(4)),
            "no data for input 'y'; give --data NAME=KIND:FILE for each");
  EXPECT_EQ(errorOf(folder, {"z=csv:" + file + ",columns=1-2"}, features(4)),
            "'--data z=csv:rows.csv,columns=1-2': the model has no input 'z'; its inputs "
            "are 'x', 'y'");
  EXPECT_EQ(
      errorOf(
          folder,
          {"x=csv:" + file + ",columns=1-2", "y=csv:" + file + ",columns=3,range=0:5"},
          features(4)),
      "the counts of samples differ: input 'x' has 10 ('rows.csv'), input 'y' has 5 "
      "('rows.csv')");
  EXPECT_EQ(errorOf(folder, {"x=csv:" + file + ",columns=1-2,scale=0"}, features(4)),
            "'--data x=csv:rows.csv,columns=1-2,scale=0': the option 'scale' has '0', "
            "expected a number other than 0");
  EXPECT_EQ(errorOf(folder, {"x=csv:" + file + ",columns=1-2,mean=1,2,3"}, features(4)),
            "'--data x=csv:rows.csv,columns=1-2,mean=1,2,3': values are given for 3 "
            "channels, but input 'x' has the shape [4, 2]");
  std::string text = folder.write("t", "abc");
  EXPECT_EQ(errorOf(folder, {"x=text:" + text}, {{"x", DType::i64, {1, 4}}}),
            "'--data x=text:t': 't' has 3 tokens, expected at least 4 for one window of "
            "input 'x'");
}

TEST(DataSource, DropsUnusedDataOnlyWhenAsked) {
  TemporaryFolder folder;
  std::string spec = "csv:" + numbered(folder, 10) + ",columns=1-2,target=3";
  std::vector<InputSpec> onlyX = {features(4)[0]};
  EXPECT_FALSE(openData(std::vector{spec}, onlyX, {.labelsInput = "y"}).ok());
  auto source =
      openData(std::vector{spec}, onlyX, {.labelsInput = "y", .ignoreUnused = true});
  ASSERT_TRUE(source.ok()) << source.status().message;
  EXPECT_EQ((*source)->size(), 10);
}

} // namespace
