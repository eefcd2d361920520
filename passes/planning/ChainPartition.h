#pragma once
// Cuts a chain of blocks into contiguous groups of equal load and, among those, few bytes
// across the cuts.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// A chain of n blocks. Sizes in bytes, times in microseconds, none negative.
struct ChainProblem {
  struct Block {
    int64_t bytes = 0; ///< of parameters
    double us = 0;     ///< of the backward part
    int64_t cutBytes =
        0; ///< of what the next block reads: the price of a cut behind this one
  };
  std::vector<Block> blocks;
  int32_t groups = 1;
  /// The greatest load may pass the least possible one by this share if fewer bytes are
  /// cut.
  double slack = 0;
};

struct ChainPartition {
  std::vector<int32_t> begins; ///< first block of each group, ascending, begins[0] = 0
  /// Of the fullest group: the greater of its shares of bytes and time, over an equal
  /// share.
  double load = 0;
  double leastLoad = 0; ///< no partition into so many groups has less
  int64_t cutBytes = 0;
  std::string error; ///< empty: a partition
};

/// Exact: the least `load` by dynamic programming over two monotone bounds, O(blocks x
/// groups); then the fewest bytes cut within the slack by a sliding minimum; then the
/// least load that so few bytes allow. Deterministic.
ChainPartition partitionChain(const ChainProblem &problem);

/// Load of the group of blocks [begin, end), as ChainPartition::load.
class ChainLoads {
public:
  explicit ChainLoads(const ChainProblem &problem);
  double of(size_t begin, size_t end) const;

private:
  std::vector<double> bytes, us; ///< prefix sums
  double equalBytes, equalUs;    ///< an equal share; 0: nothing to share
};

} // namespace sluice
