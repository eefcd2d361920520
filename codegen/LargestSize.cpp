// How large a batch or a sequence may be.

#include "codegen/Fit.h"

#include <algorithm>
#include <cmath>

namespace sluice {

Status findLargest(const SizeSearch &search,
                   llvm::function_ref<Status(int64_t, int64_t &)> bytesOf,
                   LargestSize &largest) {
  constexpr int trials = 12;
  bool startFits = search.startBytes <= search.budgetBytes;
  int64_t low = startFits ? search.start : 0;                // fits
  int64_t high = startFits ? search.most + 1 : search.start; // does not fit
  std::pair<int64_t, int64_t> a{0, search.fixedBytes}, b{search.start, search.startBytes};
  Status refused = Status::success();
  bool any = false, wasNeighbour = false;
  for (int trial = 0; trial < trials && low + 1 < high; ++trial) {
    // Along the line through what is known last, but inside what is open; a neighbour
    // proves a guess that was right.
    double slope = double(b.second - a.second) / double(b.first - a.first);
    // A neighbour that proved nothing: the line is far from the truth.
    double guess = wasNeighbour ? std::sqrt(std::max(1.0, double(low)) * double(high))
                   : slope > 0 && refused.ok()
                       ? double(b.first) + double(search.budgetBytes - b.second) / slope
                       : std::floor((double(low) + double(high)) / 2);
    int64_t size =
        int64_t(std::clamp(std::floor(guess), double(low + 1), double(high - 1)));
    wasNeighbour = size == low + 1 || size == high - 1;
    int64_t bytes = -1;
    Status status = bytesOf(size, bytes);
    largest.tried.push_back({size, status.ok() ? bytes : -1});
    if (!status.ok()) {
      refused = status;
      high = size;
      continue;
    }
    any = true;
    refused = Status::success();
    a = b, b = {size, bytes};
    (bytes <= search.budgetBytes ? low : high) = size;
  }
  if (!any && !refused.ok())
    return refused;
  largest.size = low;
  largest.limit = refused.message;
  largest.isProved = low + 1 == high && high <= search.most;
  return Status::success();
}

int64_t budgetWithShare(double share, int64_t bytes) {
  auto of = [share](int64_t budget) {
    return static_cast<int64_t>(double(budget) * share);
  };
  auto budget = static_cast<int64_t>(double(bytes) / share);
  while (of(budget) < bytes)
    ++budget;
  while (budget > 0 && of(budget - 1) >= bytes)
    --budget;
  return budget;
}

} // namespace sluice
