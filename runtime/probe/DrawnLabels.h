#pragma once
// Labels from the model's own distribution in place of the data's, for the Fisher of a
// sample: E[g g^T] over y ~ p(y | x) is the information, while the labels given stand
// only for what the data is.

#include "runtime/Session.h"

#include <string>
#include <vector>

namespace sluice {

class DrawnLabels {
public:
  /// `all`: every class, weighted, instead of one draw. Refused for losses whose logits
  /// are no rows of classes.
  static Result<DrawnLabels> create(const Plan &plan, uint64_t seed, bool all);

  /// Takes the logits of the sample from the program that has just run on it. Labels
  /// that the loss ignores stay as they are. `sample` keys the draw.
  Status read(const Session &session, const Batch &batch, int64_t sample);

  int64_t draws() const { return all ? classes : 1; }
  /// Valid until the next call.
  const Batch &batchOf(int64_t draw, double &weight);

private:
  Status resize(const Session &session, const Batch &batch);
  int64_t labelAt(const void *data, size_t row) const;
  void store(size_t row, int64_t value);
  int64_t drawn(size_t row, int64_t sample) const;

  std::string logits, labelsName;
  uint64_t seed = 0;
  bool all = false;
  size_t labelsIndex = 0;
  DType type = DType::i64;
  bool hasIgnored = false;
  int64_t ignored = 0;
  int64_t classes = 0;
  std::vector<uint8_t> labels;       // of the sample
  std::vector<double> probabilities; // [rows, classes]
  std::vector<bool> counts;          // rows that the loss does not ignore
  Batch changed;
};

} // namespace sluice
