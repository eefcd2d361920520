#pragma once
// How far groups of parameters depend on each other's values: the part of the curvature
// that lies between them, by products of the Fisher matrix with random directions. Where
// it is small, groups may be updated at different times.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

/// A group's name, and its parameters.
using ParameterSet = std::pair<std::string, std::vector<std::string>>;

/// With F = E[g g^T] over samples, and directions v of random signs: v_k^T F v_l of
/// groups k and l is the mean over samples of (v_k . g_k) (v_l . g_l).
class GroupCoupling {
public:
  /// Parameters of no group are left out. `draws` directions.
  GroupCoupling(const std::vector<std::string> &parameters,
                const std::vector<ParameterSet> &groups, uint64_t seed,
                uint32_t draws = 8);

  bool isOn() const { return names.size() > 1; }
  const std::vector<std::string> &groups() const { return names; }

  /// Part of a sample's gradient; then `endSample`, with the sample's weight.
  void add(size_t parameter, std::span<const float> gradient);
  void endSample(double weight);

  /// sum of |v_k^T F v_l| over k != l / sum of v_k^T F v_k, mean over the directions. Of
  /// n samples independent groups have about `noise()`, not 0.
  double kappa() const;
  double noise() const;
  /// The same of each group and the next in order: |v_k^T F v_l| / sqrt(v_k^T F v_k *
  /// v_l^T F v_l).
  std::vector<double> neighbours() const;
  int64_t samples() const { return seen; }

private:
  double &product(uint32_t draw, size_t k, size_t l) {
    return products[(draw * names.size() + k) * names.size() + l];
  }
  double product(uint32_t draw, size_t k, size_t l) const {
    return products[(draw * names.size() + k) * names.size() + l];
  }

  std::vector<std::string> names;
  std::vector<int32_t> groupOf; // by parameter; -1: none
  uint64_t seed;
  uint32_t draws;
  int64_t seen = 0;
  std::vector<double> current;  // by draw and group: v . g of this sample
  std::vector<double> products; // by draw, group and group: sums over samples
};

} // namespace sluice
