#include "runtime/probe/RunningMean.h"

#include <algorithm>
#include <cmath>

namespace sluice {

double studentQuantile(int64_t freedom) {
  constexpr double exact[] = {12.7062, 4.3027, 3.1824, 2.7764};
  if (freedom < 1)
    return 0;
  if (freedom <= 4)
    return exact[freedom - 1];
  // The expansion about the normal quantile (Abramowitz and Stegun, 26.7.5), here within
  // 1e-3.
  const double z = 1.959964, n = static_cast<double>(freedom), z2 = z * z;
  double sum = z;
  sum += z * (z2 + 1) / (4 * n);
  sum += z * ((5 * z2 + 16) * z2 + 3) / (96 * n * n);
  sum += z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n);
  return sum;
}

double RunningMean::standardError() const {
  if (values < 2)
    return 0;
  return std::sqrt(std::max(0.0, squares) / (weights * static_cast<double>(values - 1)));
}

double RunningMean::halfInterval() const {
  return studentQuantile(values - 1) * standardError();
}

} // namespace sluice
