#pragma once
// How the rows of a tensor are dealt out to ranks: in order, as evenly as it goes, the
// first ranks one row more where it does not divide (evenShard of
// runtime/comm/Communicator.h does the same for elements).

#include <algorithm>
#include <cstdint>

namespace sluice::graph {

struct RankRows {
  int64_t rows = 0, ranks = 1;

  int64_t begin(int64_t rank) const {
    return rank * (rows / ranks) + std::min(rank, rows % ranks);
  }
  int64_t count(int64_t rank) const { return rows / ranks + (rank < rows % ranks); }
  /// What every rank has room for.
  int64_t most() const { return (rows + ranks - 1) / ranks; }
};

} // namespace sluice::graph
