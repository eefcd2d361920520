#include "runtime/probe/GroupCoupling.h"

#include "runtime/probe/Signs.h"

#include <algorithm>
#include <cmath>

namespace sluice {

GroupCoupling::GroupCoupling(const std::vector<std::string> &parameters,
                             const std::vector<ParameterSet> &groups, uint64_t seed,
                             uint32_t draws)
    : groupOf(parameters.size(), -1), seed(seed), draws(draws) {
  for (const auto &[name, members] : groups) {
    for (const std::string &member : members) {
      auto at = std::find(parameters.begin(), parameters.end(), member);
      if (at != parameters.end())
        groupOf[static_cast<size_t>(at - parameters.begin())] =
            static_cast<int32_t>(names.size());
    }
    names.push_back(name);
  }
  current.assign(draws * names.size(), 0);
  products.assign(draws * names.size() * names.size(), 0);
}

void GroupCoupling::add(size_t parameter, std::span<const float> gradient) {
  if (groupOf[parameter] < 0)
    return;
  auto group = static_cast<size_t>(groupOf[parameter]);
  for (uint32_t draw = 0; draw < draws; ++draw) {
    Signs signs(seed, draw, static_cast<uint32_t>(parameter));
    double sum = 0;
    for (size_t i = 0; i < gradient.size(); ++i)
      sum += static_cast<double>(signs.of(i)) * static_cast<double>(gradient[i]);
    current[draw * names.size() + group] += sum;
  }
}

void GroupCoupling::endSample(double weight) {
  ++seen;
  for (uint32_t draw = 0; draw < draws; ++draw)
    for (size_t k = 0; k < names.size(); ++k)
      for (size_t l = 0; l < names.size(); ++l)
        product(draw, k, l) +=
            weight * current[draw * names.size() + k] * current[draw * names.size() + l];
  std::fill(current.begin(), current.end(), 0);
}

double GroupCoupling::kappa() const {
  double sum = 0;
  for (uint32_t draw = 0; draw < draws; ++draw) {
    double between = 0, within = 0;
    for (size_t k = 0; k < names.size(); ++k)
      for (size_t l = 0; l < names.size(); ++l)
        (k == l ? within : between) += std::abs(product(draw, k, l));
    sum += within > 0 ? between / within : 0;
  }
  return sum / draws;
}

/// What products of independent signs come to: sqrt(2 / pi n) of the geometric mean of
/// the groups' own.
double GroupCoupling::noise() const {
  constexpr double meanOfNormal = 0.797884560802865; // of |z|
  double sum = 0;
  for (uint32_t draw = 0; draw < draws; ++draw) {
    double between = 0, within = 0;
    for (size_t k = 0; k < names.size(); ++k)
      for (size_t l = 0; l < names.size(); ++l)
        if (k == l)
          within += product(draw, k, k);
        else
          between += std::sqrt(product(draw, k, k) * product(draw, l, l));
    sum += within > 0 ? between / within : 0;
  }
  return seen > 0 ? meanOfNormal / std::sqrt(static_cast<double>(seen)) * sum / draws : 0;
}

std::vector<double> GroupCoupling::neighbours() const {
  std::vector<double> result;
  for (size_t k = 0; k + 1 < names.size(); ++k) {
    double sum = 0;
    for (uint32_t draw = 0; draw < draws; ++draw) {
      double own = std::sqrt(product(draw, k, k) * product(draw, k + 1, k + 1));
      sum += own > 0 ? std::abs(product(draw, k, k + 1)) / own : 0;
    }
    result.push_back(sum / draws);
  }
  return result;
}

} // namespace sluice
