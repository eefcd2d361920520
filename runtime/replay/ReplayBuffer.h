#pragma once
// Samples of earlier data in fixed bytes of host memory, and which of them are shown
// again.

#include "runtime/Status.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace sluice {

/// What is kept when the buffer is full, and what is drawn.
enum class ReplayPolicy {
  ring,      ///< the latest samples; drawn uniformly
  reservoir, ///< a uniform sample of all seen (Vitter 1985, algorithm R); drawn uniformly
  balanced,  ///< classes as equal as what was seen allows (Chrysakis and Moens 2020);
             ///< drawn in equal parts
  prioritized ///< kept as `balanced`; drawn by how much of each task was forgotten
};

/// "ring", "reservoir", "balanced", "prioritized".
Result<ReplayPolicy> parseReplayPolicy(const std::string &name);
std::string toText(ReplayPolicy policy);

struct ReplayField {
  std::string name;
  uint64_t bytes = 0; ///< of one sample
};

struct ReplayOptions {
  ReplayPolicy policy = ReplayPolicy::reservoir;
  uint64_t capacityBytes = 0; ///< of all fields, class, task and bookkeeping of a sample
  uint64_t seed = 0;
  /// balanced, prioritized: so many samples of a class stay while the buffer can hold
  /// that many of each.
  int64_t minPerClass = 50;
  double alpha = 0.7; ///< prioritized: probability ~ forgetting ^ alpha
  double beta = 0.5;  ///< prioritized: importance weights are to this power
};

/// A sample to be shown again: its place, and what its loss is multiplied by.
struct ReplayDraw {
  int64_t index = 0;
  float weight = 1; ///< at most 1; 1 unless prioritized
};

class ReplayBuffer {
public:
  /// Refused when not one sample fits, or options are out of range.
  static Result<ReplayBuffer> create(std::vector<ReplayField> fields,
                                     const ReplayOptions &options);

  int64_t capacity() const { return most; } ///< samples
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t seen() const { return seenCount; }
  uint64_t bytes() const { return options.capacityBytes; } ///< reserved from the start
  const std::vector<ReplayField> &fields() const { return fieldList; }

  /// Offers a sample: a pointer per field. Which earlier one gives way depends on the
  /// seed and the number of samples seen alone. Returns its place, or -1 when it is not
  /// kept.
  int64_t offer(std::span<const void *const> sample, int64_t label, int64_t task);

  const uint8_t *field(int64_t index, size_t which) const {
    return data.data() + static_cast<uint64_t>(index) * sampleBytes + offsets[which];
  }
  int64_t label(int64_t index) const { return labels[static_cast<size_t>(index)]; }
  int64_t task(int64_t index) const { return tasks[static_cast<size_t>(index)]; }
  /// Samples kept of each class.
  std::map<int64_t, int64_t> classCounts() const;

  /// Forgetting of a task: (best accuracy - accuracy) / epochs since, below 0 as 0. Tasks
  /// that nothing was said of have none, and a floor keeps every sample possible.
  void setForgetting(int64_t task, double bestAccuracy, double accuracy, double epochs);

  /// `count` draws with replacement, a function of the contents, seed and `key` (the
  /// number of the update): a run that resumes draws the same. Refused on an empty
  /// buffer. With `label` only samples of that class; refused when it was never kept.
  Result<std::vector<ReplayDraw>> draw(int64_t count, uint64_t key) const;
  Result<std::vector<ReplayDraw>> drawClass(int64_t count, uint64_t key,
                                            int64_t label) const;

  /// The whole state as bytes, and back. `restore` refuses other fields or options,
  /// naming them, and what is not exactly a state; this buffer then is as before.
  std::vector<uint8_t> state() const;
  Status restore(std::span<const uint8_t> bytes);

private:
  ReplayBuffer() = default;
  void put(int64_t index, std::span<const void *const> sample, int64_t label,
           int64_t task);
  int64_t placeOf(int64_t label);
  int64_t placeByClass(int64_t label);
  int64_t placeInLargest(int64_t largest);
  void remove(int64_t index);
  uint64_t below(uint64_t bound) const;
  std::vector<double> probabilities() const;
  Result<std::vector<ReplayDraw>> drawBalanced(int64_t count, uint64_t key) const;
  Result<std::vector<ReplayDraw>> drawPrioritized(int64_t count, uint64_t key) const;
  friend class ReplayReader;

  std::vector<ReplayField> fieldList;
  ReplayOptions options;
  std::vector<uint64_t> offsets; // of fields in a sample
  uint64_t sampleBytes = 0;
  int64_t most = 0, seenCount = 0, ringNext = 0;
  std::vector<uint8_t> data;                       // capacity x sampleBytes
  std::vector<int64_t> labels, tasks, slotOf;      // slotOf: in byClass
  std::map<int64_t, std::vector<int64_t>> byClass; // places
  std::map<int64_t, int64_t> seenOfClass;
  std::map<int64_t, bool>
      wasLargest; // classes that were once the largest of a full buffer
  std::map<int64_t, double> forgetting;
};

} // namespace sluice
