#include "runtime/probe/SampleSlicer.h"

namespace sluice {

const Batch &SampleSlicer::slice(const Batch &batch, int64_t index) {
  std::vector<InputSpec> inputs = plan.inputs(program, batch.bucket);
  one.data.clear();
  one.shapes.clear();
  shapes.assign(inputs.size(), {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    size_t bytes = inputs[i].sampleBytes();
    if (i < batch.shapes.size() && !batch.shapes[i].empty()) {
      shapes[i].assign(batch.shapes[i].begin(), batch.shapes[i].end());
      if (inputs[i].batched) {
        shapes[i][0] = 1;
        bytes = dtypeSize(inputs[i].dtype);
        for (int64_t size : shapes[i])
          bytes *= static_cast<size_t>(size);
      }
    }
    size_t offset = inputs[i].batched ? bytes * static_cast<size_t>(index) : 0;
    one.data.push_back(static_cast<const char *>(batch.data[i]) + offset);
  }
  if (!batch.shapes.empty())
    for (const std::vector<int64_t> &shape : shapes)
      one.shapes.emplace_back(shape);
  one.count = 1;
  one.firstSample = batch.firstSample + index;
  one.bucket = batch.bucket;
  return one;
}

Status withFirst(Batch &batch, int64_t count, const std::function<Status(Batch &)> &use) {
  std::vector<std::vector<int64_t>> shapes;
  if (batch.count > count) {
    batch.count = count;
    // The shapes count samples too.
    for (std::span<const int64_t> &shape : batch.shapes) {
      auto &cut = shapes.emplace_back(shape.begin(), shape.end());
      if (!cut.empty() && cut[0] > count)
        cut[0] = count;
      shape = cut;
    }
  }
  return use(batch);
}

Status forSamples(BatchSource &source, int64_t samples,
                  const std::function<Status(Batch &)> &use) {
  if (samples > source.size())
    return Status::refused("the data has " + std::to_string(source.size()) +
                           " samples, " + std::to_string(samples) + " are asked for");
  if (Status status = source.seek(0); !status.ok())
    return status;
  for (int64_t done = 0; done < samples;) {
    Batch batch;
    Status status = source.next(batch);
    int64_t rest = samples - done;
    done += batch.count;
    if (status.ok())
      status = withFirst(batch, rest, use);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
