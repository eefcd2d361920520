#include "kernels/Extent.h"

namespace sluice::extent {

static Wide magnitude(int64_t stride) {
  return stride < 0 ? -Wide(stride) : Wide(stride);
}

bool isCount(int64_t n) { return n >= 0 && n <= kMaxCount; }
bool isStride(int64_t n) { return n >= 0 && n <= kMaxCount; }

bool areCounts(std::initializer_list<int64_t> values) {
  for (int64_t v : values)
    if (!isCount(v))
      return false;
  return true;
}

bool areStrides(std::initializer_list<int64_t> values) { return areCounts(values); }

int64_t product(std::initializer_list<int64_t> factors) {
  Wide result = 1;
  bool empty = false;
  for (int64_t f : factors) {
    if (f < 0)
      return -1;
    empty |= f == 0;
    result *= f == 0 ? 1 : f;
    if (result > kMaxBytes)
      return -1;
  }
  return empty ? 0 : static_cast<int64_t>(result);
}

int64_t reach(const Dim *dims, int64_t rank, int64_t offset, int64_t elementBytes) {
  Wide low = offset, high = offset;
  bool empty = false;
  for (int64_t i = 0; i < rank; ++i) {
    if (!isCount(dims[i].count) || magnitude(dims[i].stride) > kMaxCount)
      return -1;
    empty |= dims[i].count == 0;
    Wide last = Wide(dims[i].count - 1) * dims[i].stride;
    (last < 0 ? low : high) += last;
  }
  if (empty)
    return 0;
  Wide bytes = (high + 1) * elementBytes;
  if (low < 0 || bytes > kMaxBytes)
    return -1;
  return static_cast<int64_t>(bytes);
}

int64_t reach(std::initializer_list<Dim> dims, int64_t elementBytes) {
  return reach(dims.begin(), static_cast<int64_t>(dims.size()), 0, elementBytes);
}

bool areDistinct(const Dim *dims, int64_t rank) {
  // Repeatedly takes the dim of the least stride not yet spanned.
  Wide span = 0;
  std::vector<bool> taken(rank);
  for (int64_t i = 0; i < rank; ++i)
    if (dims[i].count == 0)
      return true;
  for (int64_t round = 0; round < rank; ++round) {
    int64_t next = -1;
    for (int64_t i = 0; i < rank; ++i)
      if (!taken[i] &&
          (next < 0 || magnitude(dims[i].stride) < magnitude(dims[next].stride)))
        next = i;
    taken[next] = true;
    if (dims[next].count <= 1)
      continue;
    Wide stride = magnitude(dims[next].stride);
    if (stride <= span)
      return false;
    span += stride * (dims[next].count - 1);
  }
  return true;
}

bool areDistinct(std::initializer_list<Dim> dims) {
  return areDistinct(dims.begin(), static_cast<int64_t>(dims.size()));
}

void Extents::push(int64_t bytes, int64_t unitBytes, bool written, bool perWorker) {
  if (bytes < 0) {
    failed = true;
    why = "operand " + std::to_string(out.size()) +
          " reaches below its start or beyond 2^50 bytes";
    bytes = 0;
  }
  out.push_back({bytes, unitBytes > 0 ? unitBytes : 0, written, perWorker});
}

bool Extents::done(int64_t units, int64_t expected) {
  if (failed)
    return false;
  if (units == expected)
    return true;
  why = "the launch has " + std::to_string(units) + " units, expected " +
        std::to_string(expected) + " from its parameters";
  return false;
}

} // namespace sluice::extent
