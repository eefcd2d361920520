#include "runtime/data/DataSource.h"

#include "runtime/data/BatchLoader.h"
#include "runtime/data/Permutation.h"

#include <algorithm>
#include <new>
#include <system_error>

namespace sluice {
namespace {

/// The common number of samples, or why there is none.
Result<int64_t> commonCount(const std::vector<Column> &columns) {
  const Column *first = nullptr;
  for (const Column &column : columns) {
    if (!column.batched())
      continue;
    if (!first)
      first = &column;
    if (column.samples != first->samples)
      return Status::refused("the counts of samples differ: input '" + first->input.name +
                             "' has " + std::to_string(first->samples) + " ('" +
                             first->array.origin + "'), input '" + column.input.name +
                             "' has " + std::to_string(column.samples) + " ('" +
                             column.array.origin + "')");
    if (column.input.shape[0] != first->input.shape[0])
      return Status::refused("inputs '" + first->input.name + "' and '" +
                             column.input.name + "' have different batch sizes");
  }
  if (!first)
    return Status::refused("no input of the model has a dimension of samples");
  return first->samples;
}

} // namespace

std::vector<int64_t> takeFitting(const std::vector<Column> &columns,
                                 std::vector<bool> &taken) {
  auto count = commonCount(columns);
  std::vector<int64_t> fitting;
  if (!count)
    return fitting;
  taken.resize(size_t(*count));
  for (int64_t sample = 0; sample < *count; ++sample) {
    bool fits = !taken[size_t(sample)];
    for (const Column &column : columns)
      fits = fits && column.fits(sample);
    if (fits) {
      taken[size_t(sample)] = true;
      fitting.push_back(sample);
    }
  }
  return fitting;
}

std::string firstLeft(const std::vector<Column> &columns,
                      const std::vector<bool> &taken) {
  auto left = std::find(taken.begin(), taken.end(), false) - taken.begin();
  if (left == static_cast<std::ptrdiff_t>(taken.size()))
    return "";
  for (const Column &column : columns)
    if (!column.fits(left))
      return "sample " + std::to_string(left) + " of '" + column.array.origin +
             "' has the length " + std::to_string(column.lengthOf(left));
  return "";
}

DataSource::DataSource(std::vector<Column> newColumns, const DataOptions &options)
    : columns(std::move(newColumns)), options(options) {}

DataSource::~DataSource() = default;

Result<std::unique_ptr<DataSource>> DataSource::make(std::vector<Column> columns,
                                                     const DataOptions &options,
                                                     std::vector<int64_t> chosen) {
  auto count = commonCount(columns);
  if (!count)
    return count.status();
  try {
    std::unique_ptr<DataSource> source(new DataSource(std::move(columns), options));
    source->sampleCount = chosen.empty() ? *count : int64_t(chosen.size());
    source->chosen = std::move(chosen);
    for (const Column &column : source->columns)
      if (column.batched())
        source->batchSize = column.input.shape[0];
    if (source->batchSize < 1)
      return Status::refused("the batch size of the model is 0");

    // One batch is with the caller while the others are read.
    Slot slot;
    for (const Column &column : source->columns) {
      size_t bytes =
          column.input.sampleBytes() * size_t(column.batched() ? source->batchSize : 1);
      slot.inputs.emplace_back((bytes + 7) / 8);
      size_t rank = column.input.shape.size() - 1;
      bool isFilled = column.batched() && column.isFilled();
      slot.given.emplace_back(isFilled ? rank * size_t(source->batchSize) : 0);
    }
    slot.samples.resize(size_t(source->batchSize));
    std::vector<Slot> slots(size_t(std::max(options.prefetch, 0)) + 1, slot);
    source->loader =
        std::make_unique<BatchLoader>(*source, std::move(slots), options.prefetch > 0);
    return source;
  } catch (const std::bad_alloc &) {
    return Status::doesNotFit("not enough memory for the buffers of the data");
  } catch (const std::system_error &error) {
    return Status::failed(std::string("cannot start the thread that reads data: ") +
                          error.what());
  }
}

int64_t DataSource::bufferBytes() const { return loader->bytes(); }

int64_t DataSource::sampleAt(int64_t position) const {
  int64_t epoch = position / sampleCount, place = position % sampleCount;
  if (options.shuffle) {
    SamplePermutation permutation(options.seed, uint64_t(epoch), uint64_t(sampleCount));
    place = int64_t(permutation(uint64_t(place)));
  }
  return chosen.empty() ? place : chosen[size_t(place)];
}

void DataSource::fill(Slot &slot, int64_t position) const {
  int64_t place = position % sampleCount;
  slot.firstSample = position;
  slot.count = std::min(batchSize, sampleCount - place);
  slot.status = Status::success();
  for (int64_t i = 0; i < slot.count; ++i)
    slot.samples[size_t(i)] = sampleAt(position + i);
  for (size_t c = 0; c < columns.size() && slot.status.ok(); ++c) {
    const Column &column = columns[c];
    auto *out = reinterpret_cast<uint8_t *>(slot.inputs[c].data());
    int64_t reads = column.batched() ? slot.count : 1;
    size_t rank = slot.given[c].size() / size_t(batchSize);
    for (int64_t i = 0; i < reads && slot.status.ok(); ++i) {
      int64_t sample = slot.samples[size_t(i)];
      slot.status = column.read(sample, out + size_t(i) * column.input.sampleBytes());
      if (rank > 0)
        column.givenShape(sample, slot.given[c].data() + size_t(i) * rank);
    }
  }
}

Status DataSource::seek(int64_t sample) {
  if (sample < 0)
    return Status::usage("cannot seek to the sample " + std::to_string(sample) +
                         ", expected 0 or more");
  loader->seek(sample);
  return Status::success();
}

Status DataSource::next(Batch &batch) {
  const Slot &slot = loader->next();
  if (!slot.status.ok())
    return slot.status;
  batch.data.resize(columns.size());
  for (size_t c = 0; c < columns.size(); ++c)
    batch.data[c] = slot.inputs[c].data();
  batch.count = slot.count;
  batch.firstSample = slot.firstSample;
  size_t count = size_t(slot.count);
  batch.samples = std::span(slot.samples).first(count);
  batch.given.resize(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t rank = slot.given[c].size() / size_t(batchSize);
    batch.given[c] = std::span(slot.given[c]).first(rank * count);
  }
  return Status::success();
}

} // namespace sluice
