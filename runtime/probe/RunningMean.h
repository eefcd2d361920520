#pragma once
// A weighted mean and how far off it may be.

#include <cstdint>

namespace sluice {

/// The value that a Student t variable with so many degrees of freedom exceeds in
/// magnitude with probability 5%.
double studentQuantile(int64_t freedom);

/// Mean and standard error of independent values with weights (B. Welford, 1962; D. West,
/// 1979).
class RunningMean {
public:
  void add(double value, double weight = 1) {
    if (!(weight > 0))
      return;
    ++values;
    weights += weight;
    double before = value - average;
    average += before * (weight / weights);
    squares += weight * before * (value - average);
  }

  int64_t count() const { return values; }
  double mean() const { return average; }
  /// Of the mean; 0 where there are not two values.
  double standardError() const;
  /// Half the width of the interval that holds the true mean with probability 95%.
  double halfInterval() const;

private:
  int64_t values = 0;
  double weights = 0, average = 0, squares = 0;
};

} // namespace sluice
