// Batches of new and replayed samples: exact numbers of both, their weights, and the
// same batches after a seek.

#include "runtime/replay/TaskSource.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

/// Samples 0, 1, ... as x, their classes as labels.
class Numbers final : public BatchSource {
public:
  Numbers(int64_t count, int64_t batch) : count(count), batch(batch) {}
  int64_t size() const override { return count; }
  Status seek(int64_t sample) override {
    at = sample;
    return Status::success();
  }
  Status next(Batch &out) override {
    int64_t place = at % count, number = std::min(batch, count - place);
    x.clear(), labels.clear();
    for (int64_t i = 0; i < number; ++i)
      x.push_back(static_cast<float>(place + i)), labels.push_back((place + i) % 2);
    out.data = {x.data(), labels.data()};
    out.count = number;
    out.firstSample = at;
    at += number;
    return Status::success();
  }

private:
  int64_t count, batch, at = 0;
  std::vector<float> x;
  std::vector<int64_t> labels;
};

std::vector<InputSpec> inputs(bool weighted, bool logits) {
  std::vector<InputSpec> list = {{"x", DType::f32, {10}}, {"labels", DType::i64, {10}}};
  if (weighted)
    list.push_back({"replay/weight", DType::f32, {10}});
  if (logits) {
    list.push_back({"replay/match", DType::f32, {10}});
    list.push_back({"replay/logits", DType::f32, {10, 2}});
  }
  return list;
}

/// Samples 1000, 1001, ...; logits are the number and its half.
ReplayBuffer bufferOf(int64_t count, bool logits) {
  std::vector<ReplayField> fields = {{"x", 4}, {"labels", 8}};
  if (logits)
    fields.push_back({"replay/logits", 8});
  ReplayOptions options;
  options.capacityBytes = 1 << 16;
  auto buffer = ReplayBuffer::create(fields, options);
  EXPECT_TRUE(buffer);
  for (int64_t i = 0; i < count; ++i) {
    float x = static_cast<float>(1000 + i), z[] = {x, x / 2};
    int64_t label = i % 2;
    const void *sample[] = {&x, &label, z};
    buffer->offer(std::span(sample, fields.size()), label, 0);
  }
  return std::move(*buffer);
}

std::unique_ptr<TaskSource> make(const ReplayBuffer *buffer, ReplayMix mix, int64_t size,
                                 bool weighted = false, int64_t first = 0) {
  TaskSourceOptions options;
  options.batch = 10;
  options.firstPosition = first;
  options.mix = mix;
  options.buffer = buffer;
  auto made = TaskSource::make(std::make_unique<Numbers>(size, options.fresh()),
                               inputs(weighted, mix.logitsWeight.has_value()), options);
  EXPECT_TRUE(made) << made.status().message;
  return made ? std::move(*made) : nullptr;
}

const float *floats(const Batch &batch, size_t input) {
  return static_cast<const float *>(batch.data[input]);
}

TEST(TaskSource, EveryBatchHasItsShareOfBoth) {
  ReplayBuffer buffer = bufferOf(50, false);
  auto source = make(&buffer, {3, {}, 1}, 24);
  EXPECT_EQ(source->size(), 24 + 4 * 3); // batches of 7, 7, 7, 3 new ones
  EXPECT_EQ(source->batches(10).all, 4);
  EXPECT_EQ(source->batches(10).full, 3);
  EXPECT_EQ(source->batches(10).restSamples, 6);
  ASSERT_TRUE(source->seek(0).ok());
  std::multiset<float> fresh;
  Batch batch;
  for (int64_t done = 0, index = 0; done < source->size(); done += batch.count, ++index) {
    ASSERT_TRUE(source->next(batch).ok());
    EXPECT_EQ(batch.firstSample, done);
    EXPECT_EQ(batch.count, index < 3 ? 10 : 6);
    EXPECT_EQ(source->endsEpoch(batch), index == 3);
    for (int64_t i = 0; i < batch.count; ++i) {
      float x = floats(batch, 0)[i];
      EXPECT_EQ(x >= 1000, i >= batch.count - 3);
      EXPECT_EQ(static_cast<const int64_t *>(batch.data[1])[i], int64_t(x) % 2);
      if (x < 1000)
        fresh.insert(x);
    }
  }
  EXPECT_EQ(fresh.size(), 24u);
  EXPECT_EQ(std::set<float>(fresh.begin(), fresh.end()).size(), 24u);
}

TEST(TaskSource, ASeekGivesTheSameBatches) {
  ReplayBuffer buffer = bufferOf(50, false);
  auto source = make(&buffer, {3, {}, 1}, 24, false, 500);
  ASSERT_TRUE(source->seek(500).ok());
  std::vector<std::vector<float>> seen;
  Batch batch;
  for (int i = 0; i < 9; ++i) { // into the third epoch
    ASSERT_TRUE(source->next(batch).ok());
    seen.emplace_back(floats(batch, 0), floats(batch, 0) + batch.count);
  }
  EXPECT_NE(seen[0], seen[4]); // other draws
  ASSERT_TRUE(source->seek(500 + 36 + 20).ok());
  for (int i = 6; i < 9; ++i) {
    ASSERT_TRUE(source->next(batch).ok());
    EXPECT_EQ(std::vector<float>(floats(batch, 0), floats(batch, 0) + batch.count),
              seen[static_cast<size_t>(i)]);
  }
  EXPECT_FALSE(source->seek(500 + 15).ok());
  EXPECT_FALSE(source->seek(499).ok());
}

TEST(TaskSource, AnEmptyBufferLeavesTheDataAlone) {
  ReplayBuffer buffer = bufferOf(0, false);
  auto source = make(&buffer, {3, {}, 1}, 24, true);
  EXPECT_EQ(source->size(), 24);
  Batch batch;
  ASSERT_TRUE(source->seek(0).ok() && source->next(batch).ok());
  EXPECT_EQ(batch.count, 10);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(floats(batch, 2)[i], 1);
}

TEST(TaskSource, DerWeighsThreeMeans) {
  ReplayBuffer buffer = bufferOf(50, true);
  auto source = make(&buffer, {4, 0.3, 0.5}, 24, true);
  Batch batch;
  ASSERT_TRUE(source->seek(0).ok() && source->next(batch).ok());
  ASSERT_EQ(batch.count, 10);
  const float *weight = floats(batch, 2), *match = floats(batch, 3),
              *logits = floats(batch, 4);
  for (int i = 0; i < 10; ++i) {
    bool fresh = i < 6, matched = i >= 6 && i < 8;
    EXPECT_FLOAT_EQ(weight[i], fresh ? 10.f / 6 : matched ? 0 : 0.5f * 10 / 2);
    EXPECT_FLOAT_EQ(match[i], matched ? 0.3f * 10 / 2 : 0);
    EXPECT_EQ(logits[2 * i], fresh ? 0 : floats(batch, 0)[i]);
    EXPECT_EQ(logits[2 * i + 1], fresh ? 0 : floats(batch, 0)[i] / 2);
  }
}

TEST(TaskSource, ABufferOfOtherSamplesIsRefused) {
  ReplayBuffer buffer = bufferOf(5, false);
  TaskSourceOptions options;
  options.batch = 10;
  options.mix.samples = 2;
  options.buffer = &buffer;
  auto list = inputs(false, false);
  list[0].shape = {10, 3};
  auto made = TaskSource::make(std::make_unique<Numbers>(20, 8), list, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.status().message,
            "the replay buffer keeps 4 bytes of the input 'x', expected 12");
  options.mix.samples = 10;
  made =
      TaskSource::make(std::make_unique<Numbers>(20, 8), inputs(false, false), options);
  ASSERT_FALSE(made);
  options.mix.samples = 2;
  list = inputs(true, false);
  list[2].dtype = DType::i64;
  made = TaskSource::make(std::make_unique<Numbers>(20, 8), list, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.status().message, "the input 'replay/weight' is not f32 by sample");
}

} // namespace
} // namespace sluice
