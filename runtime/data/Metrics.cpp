#include "runtime/data/Metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {

Metrics::Metrics(const MetricsOptions &options)
    : options(options), effectiveClasses(std::max<int64_t>(options.classes, 2)) {
  if (effectiveClasses <= maxConfusionClasses)
    matrix.assign(size_t(effectiveClasses * effectiveClasses), 0);
}

bool Metrics::add(const float *logits, const int64_t *labels, int64_t rows) {
  auto ignores = [&](int64_t label) { return options.ignored == label; };
  for (int64_t r = 0; r < rows; ++r)
    if (!ignores(labels[r]) && (labels[r] < 0 || labels[r] >= effectiveClasses))
      return false;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t label = labels[r];
    if (ignores(label))
      continue;
    const float *row = logits + r * options.classes;
    int64_t prediction, above = 0; // logits that come before the label's
    if (options.classes == 1) {
      prediction = row[0] > 0;
      above = prediction != label;
    } else {
      prediction = std::max_element(row, row + options.classes) - row;
      for (int64_t c = 0; c < options.classes; ++c)
        above += row[c] > row[label] || (row[c] == row[label] && c < label);
    }
    if (effectiveClasses == 2)
      scores[label].push_back(options.classes == 1 ? row[0] : row[1] - row[0]);
    ++rowCount;
    correct += prediction == label;
    inTopK += above < options.topK;
    if (!matrix.empty())
      ++matrix[size_t(label * effectiveClasses + prediction)];
  }
  return true;
}

void Metrics::addLoss(double sum, double count) {
  lossSum += sum;
  lossCount += count;
}

static double ratio(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

double Metrics::accuracy() const { return ratio(double(correct), double(rowCount)); }
double Metrics::topKAccuracy() const { return ratio(double(inTopK), double(rowCount)); }
double Metrics::meanLoss() const { return ratio(lossSum, lossCount); }
double Metrics::perplexity() const { return std::exp(meanLoss()); }

std::optional<double> Metrics::auc() const {
  if (effectiveClasses != 2 || scores[0].empty() || scores[1].empty())
    return std::nullopt;
  std::vector<float> negative = scores[0], positive = scores[1];
  std::sort(negative.begin(), negative.end());
  std::sort(positive.begin(), positive.end());
  // For each positive, the negatives below it and those equal to it; both ends only rise.
  double wins = 0;
  size_t below = 0, notAbove = 0;
  for (float score : positive) {
    while (below < negative.size() && negative[below] < score)
      ++below;
    while (notAbove < negative.size() && negative[notAbove] <= score)
      ++notAbove;
    wins += double(below) + 0.5 * double(notAbove - below);
  }
  return wins / (double(negative.size()) * double(positive.size()));
}

/// Lowers the threshold from score to score; rows of equal scores come together.
std::optional<double> Metrics::recallWhere(
    const std::function<bool(double found, double wrong)> &isAllowed) const {
  if (effectiveClasses != 2 || scores[1].empty())
    return std::nullopt;
  std::vector<float> negative = scores[0], positive = scores[1];
  std::sort(negative.begin(), negative.end(), std::greater<>());
  std::sort(positive.begin(), positive.end(), std::greater<>());
  size_t found = 0, wrong = 0, best = 0;
  while (found < positive.size()) {
    float threshold = positive[found];
    while (found < positive.size() && positive[found] >= threshold)
      ++found;
    while (wrong < negative.size() && negative[wrong] >= threshold)
      ++wrong;
    if (isAllowed(double(found), double(wrong)))
      best = found;
  }
  return double(best) / double(positive.size());
}

std::optional<double> Metrics::recallAtPrecision(double least) const {
  return recallWhere(
      [&](double found, double wrong) { return found >= least * (found + wrong); });
}

std::optional<double> Metrics::recallAtFalsePositiveRate(double most) const {
  double negatives = double(scores[0].size());
  return recallWhere([&](double, double wrong) { return wrong <= most * negatives; });
}

std::optional<double> Metrics::classMean(Divisor divisor) const {
  if (matrix.empty() || rowCount == 0)
    return std::nullopt;
  double sum = 0;
  int64_t occurring = 0, classCount = effectiveClasses;
  for (int64_t c = classCount == 2 ? 1 : 0; c < classCount; ++c) {
    int64_t labelled = 0, predicted = 0;
    for (int64_t other = 0; other < classCount; ++other) {
      labelled += matrix[size_t(c * classCount + other)];
      predicted += matrix[size_t(other * classCount + c)];
    }
    if (labelled + predicted == 0)
      continue;
    ++occurring;
    int64_t whole = divisor == Divisor::Predicted ? predicted : labelled;
    if (whole > 0)
      sum += double(matrix[size_t(c * classCount + c)]) / double(whole);
  }
  return occurring > 0 ? sum / double(occurring) : 0.0;
}

std::optional<double> Metrics::precision() const { return classMean(Divisor::Predicted); }
std::optional<double> Metrics::recall() const { return classMean(Divisor::Labelled); }

} // namespace sluice
