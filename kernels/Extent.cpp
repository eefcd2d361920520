#include "kernels/Extent.h"

namespace sluice::extent {

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
  for (int64_t i = 0; i < rank; ++i)
    if (dims[i].count == 0)
      return 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (!isCount(dims[i].count) || dims[i].stride > kMaxCount ||
        dims[i].stride < -kMaxCount)
      return -1;
    Wide last = Wide(dims[i].count - 1) * dims[i].stride;
    (last < 0 ? low : high) += last;
  }
  Wide bytes = (high + 1) * elementBytes;
  if (low < 0 || bytes > kMaxBytes)
    return -1;
  return static_cast<int64_t>(bytes);
}

int64_t reach(std::initializer_list<Dim> dims, int64_t elementBytes) {
  return reach(dims.begin(), static_cast<int64_t>(dims.size()), 0, elementBytes);
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
