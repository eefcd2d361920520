#include "kernels/reference/Ctc.h"

#include <algorithm>
#include <cmath>

namespace sluice::reference {
namespace {

/// What is left when repetitions are joined and blanks removed.
std::vector<int64_t> collapsed(const std::vector<int64_t> &path, int64_t blank) {
  std::vector<int64_t> result;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1]))
      result.push_back(path[t]);
  return result;
}

/// The next path in the order of numbers to the base `classes`; false behind the last.
bool advance(std::vector<int64_t> &path, int64_t classes) {
  for (int64_t &c : path) {
    if (++c < classes)
      return true;
    c = 0;
  }
  return false;
}

} // namespace

CtcValue ctc(const CtcParams &p, const std::vector<float> &logProbs,
             const std::vector<int64_t> &targets,
             const std::vector<int64_t> &inputLengths,
             const std::vector<int64_t> &targetLengths) {
  CtcValue value{std::vector<double>(p.batch), std::vector<double>(logProbs.size())};
  for (int64_t n = 0; n < p.batch; ++n) {
    auto first = targets.begin() + n * p.labels;
    std::vector<int64_t> target(first, first + targetLengths[n]);
    std::vector<int64_t> path(inputLengths[n], 0);
    std::vector<double> share(p.frames * p.classes, 0);
    double total = 0;
    do {
      if (collapsed(path, p.blank) != target)
        continue;
      double score = 0;
      for (size_t t = 0; t < path.size(); ++t)
        score += logProbs[(n * p.frames + t) * p.classes + path[t]];
      total += std::exp(score);
      for (size_t t = 0; t < path.size(); ++t)
        share[t * p.classes + path[t]] += std::exp(score);
    } while (advance(path, p.classes));
    bool dropped = total == 0 && p.zeroInfinity;
    double factor = p.perLabel ? 1.0 / std::max<double>(target.size(), 1) : 1.0;
    value.loss[n] = dropped ? 0 : -std::log(total) * factor;
    for (size_t i = 0; i < share.size() && !dropped; ++i)
      value.grad[n * share.size() + i] = -share[i] / total * factor;
  }
  return value;
}

} // namespace sluice::reference
