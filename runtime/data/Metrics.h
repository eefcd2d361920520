#pragma once
// Figures over a whole evaluation, from the logits and labels of its batches.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace sluice {

struct MetricsOptions {
  int64_t classes = 2; ///< 1: one logit per row, positive when above 0 (labels 0 and 1)
  int64_t topK = 5;
  std::optional<int64_t> ignored = std::nullopt; ///< rows with this label are left out
};

/// Confusion matrices are kept up to this many classes; precision and recall need one.
constexpr int64_t maxConfusionClasses = 1024;

class Metrics {
public:
  explicit Metrics(const MetricsOptions &options);

  /// `logits` is rows x classes. The prediction is the largest logit, the first of
  /// equals. False when a label is out of range; nothing of the batch is counted then.
  bool add(const float *logits, const int64_t *labels, int64_t rows);
  void addLoss(double sum, double count);

  int64_t count() const { return rowCount; }
  double accuracy() const; ///< these are NaN before the first row
  /// Share of rows whose label is among the k largest logits; a label equal to the k-th
  /// counts by position, as in a stable sort.
  double topKAccuracy() const;
  double meanLoss() const;
  double perplexity() const; ///< exp of the mean loss

  /// Two classes (or one logit): the probability that a random positive row scores above
  /// a random negative one, ties counted half. Exact, by sorting. Nothing with more
  /// classes or when one class has no row.
  std::optional<double> auc() const;
  /// Two classes: of class 1. More: unweighted mean over the classes that occur as label
  /// or prediction. 0 where a denominator is 0. Nothing above `maxConfusionClasses`.
  std::optional<double> precision() const;
  std::optional<double> recall() const;
  /// Two classes: the largest share of positives found by a threshold on the score whose
  /// precision is at least `least`; 0 when there is none. Nothing with more classes or
  /// without a positive.
  std::optional<double> recallAtPrecision(double least) const;
  /// The same where at most the share `most` of the negatives is taken for positive.
  std::optional<double> recallAtFalsePositiveRate(double most) const;
  /// Row-major [label][prediction]; empty above `maxConfusionClasses`.
  const std::vector<int64_t> &confusion() const { return matrix; }
  int64_t classes() const { return effectiveClasses; }

private:
  std::optional<double>
  recallWhere(const std::function<bool(double found, double wrong)> &isAllowed) const;
  enum class Divisor { Predicted, Labelled };
  std::optional<double> classMean(Divisor divisor) const;

  MetricsOptions options;
  int64_t effectiveClasses; // 2 for one logit
  int64_t rowCount = 0, correct = 0, inTopK = 0;
  double lossSum = 0, lossCount = 0;
  std::vector<int64_t> matrix;
  std::vector<float> scores[2]; // of two classes: by label, the higher the more class 1
};

} // namespace sluice
