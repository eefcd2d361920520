#pragma once
// Batches from files: opens what `--data` names, shuffles by counter, and reads ahead in
// a thread of its own.

#include "runtime/BatchSource.h"
#include "runtime/data/Column.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct DataOptions {
  bool shuffle = true;
  uint64_t seed = 0; ///< of the order of samples
  int prefetch = 2;  ///< batches read ahead; 0 reads in the caller's thread
  std::string labelsInput =
      {};                    ///< where a csv's `target` goes; the last input when empty
  bool ignoreUnused = false; ///< data for inputs that the program does not have (labels
                             ///< when only inferring) is dropped instead of refused
};

/// The samples of columns of different lengths that fit their inputs, in the file's
/// order; of those that are not `taken` yet, and they are afterwards. `taken` is empty at
/// first.
std::vector<int64_t> takeFitting(const std::vector<Column> &columns,
                                 std::vector<bool> &taken);

/// "sample 3 of 'tokens.npy' has the length 130", of the first that is not taken.
std::string firstLeft(const std::vector<Column> &columns, const std::vector<bool> &taken);

class BatchLoader;

class DataSource final : public BatchSource {
public:
  /// All columns have the same number of samples, those without batch aside; all batched
  /// inputs the same batch size. Of `chosen` samples only, when there are any.
  static Result<std::unique_ptr<DataSource>> make(std::vector<Column> columns,
                                                  const DataOptions &options,
                                                  std::vector<int64_t> chosen = {});
  ~DataSource() override;

  int64_t size() const override { return sampleCount; }
  Status seek(int64_t sample) override;
  Status next(Batch &batch) override;

  /// Bytes of the batch buffers, all allocated by `make`.
  int64_t bufferBytes() const;
  /// The index in the file's order of the sample at this position of the sequence.
  int64_t sampleAt(int64_t position) const;

private:
  friend class BatchLoader;
  /// Room for one batch.
  struct Slot {
    std::vector<std::vector<uint64_t>> inputs; // by column; 8-byte units for alignment
    std::vector<int64_t> samples;              // of the data
    std::vector<std::vector<int64_t>> given;   // by column, as Batch has them
    int64_t firstSample = 0, count = 0;
    Status status = {};
  };

  DataSource(std::vector<Column> columns, const DataOptions &options);
  void fill(Slot &slot, int64_t position) const;

  std::vector<Column> columns;
  DataOptions options;
  std::vector<int64_t> chosen;
  int64_t sampleCount = 0, batchSize = 0;
  std::unique_ptr<BatchLoader> loader;
};

/// Opens the data of all inputs as columns.
Result<std::vector<Column>> openColumns(std::span<const std::string> specs,
                                        const std::vector<InputSpec> &inputs,
                                        const DataOptions &options);

/// Opens the data of all inputs: `specs` as given to --data, `inputs` in the program's
/// order, which is that of the batches' pointers.
Result<std::unique_ptr<DataSource>> openData(std::span<const std::string> specs,
                                             const std::vector<InputSpec> &inputs,
                                             const DataOptions &options);

} // namespace sluice
