#pragma once
// The batches of one task of a stream: new samples, and a fixed number of replayed ones
// behind them. Its positions go on where those of the task before ended.

#include "runtime/replay/ReplayMix.h"

#include <memory>

namespace sluice {

struct TaskSourceOptions {
  int64_t batch = 1;         ///< samples of a micro-batch
  int64_t firstPosition = 0; ///< in the sequence of all tasks
  ReplayMix mix;
  /// Null or empty: new samples alone. Must not change while the source is in use: what
  /// is drawn depends on the contents and the position alone.
  const ReplayBuffer *buffer = nullptr;

  int64_t replayed() const { return buffer && buffer->size() > 0 ? mix.samples : 0; }
  int64_t fresh() const { return batch - replayed(); } ///< per micro-batch, at most
};

class TaskSource final : public BatchSource {
public:
  /// `data` gives batches of options.fresh() samples; `inputs` are all of the program
  /// that trains, in order, those of replay among them.
  static Result<std::unique_ptr<TaskSource>> make(std::unique_ptr<BatchSource> data,
                                                  std::vector<InputSpec> inputs,
                                                  const TaskSourceOptions &options);

  /// Replayed samples included.
  int64_t size() const override;
  EpochBatches batches(int64_t batch) const override;
  bool endsEpoch(const Batch &batch) const override;
  /// Refused inside a batch.
  Status seek(int64_t sample) override;
  Status next(Batch &batch) override;

private:
  TaskSource(std::unique_ptr<BatchSource> data, std::vector<InputSpec> inputs,
             const TaskSourceOptions &options);
  int64_t batchCount() const;
  void place(const Batch &fresh, std::span<const ReplayShare> shares, float freshWeight);

  std::unique_ptr<BatchSource> data;
  std::vector<InputSpec> inputs;
  TaskSourceOptions options;
  std::vector<std::vector<uint64_t>> room; // by input; 8-byte units for alignment
  std::vector<int64_t> dataIndex, field;   // by input: of the data, of the buffer; or -1
  Batch fresh;
  int64_t position = 0; // of the task
};

} // namespace sluice
