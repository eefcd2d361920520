#pragma once
// Arithmetic for the proof that a launch stays inside its operands. Parameters come from
// a file: every product here is done in 128 bits and every count is bounded before use.

#include "kernels/Catalog.h"

#include <initializer_list>

namespace sluice::extent {

using Wide = __int128;

constexpr int64_t kMaxCount = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 50;

struct Dim {
  int64_t count, stride;
};

bool isCount(int64_t n);
bool isStride(int64_t n);
/// Each a count in [0, 2^40].
bool areCounts(std::initializer_list<int64_t> values);
/// Each in [0, 2^40]: strides that never go below the operand's start.
bool areStrides(std::initializer_list<int64_t> values);
inline bool isFlag(int64_t n) { return n == 0 || n == 1; }

/// The product, or -1 when a factor is negative or the product of those that are not 0 is
/// above kMaxBytes.
int64_t product(std::initializer_list<int64_t> factors);

/// Bytes up to the end of the last element reached from `offset`, 0 when there is none;
/// -1 when something lies below 0 or above kMaxBytes.
int64_t reach(const Dim *dims, int64_t rank, int64_t offset, int64_t elementBytes);
int64_t reach(std::initializer_list<Dim> dims, int64_t elementBytes);

/// Whether no two indices reach the same element, so that the work is bounded by the
/// operand. Sufficient, not necessary: each stride exceeds the span of all smaller ones.
bool areDistinct(const Dim *dims, int64_t rank);
bool areDistinct(std::initializer_list<Dim> dims);

/// Collects the operands of a launch; any operand of -1 bytes makes it invalid.
class Extents {
public:
  Extents(std::vector<OperandExtent> &out, std::string &why) : out(out), why(why) {
    out.clear();
  }
  /// unitBytes of -1 or 0: not chainable.
  void input(int64_t bytes, int64_t unitBytes = 0) {
    push(bytes, unitBytes, false, false);
  }
  void output(int64_t bytes, int64_t unitBytes = 0) {
    push(bytes, unitBytes, true, false);
  }
  void workspace(int64_t bytes) { push(bytes, 0, true, true); }
  bool refuse(const char *reason) {
    why = reason;
    return false;
  }
  /// The last step: compares the number of units.
  bool done(int64_t units, int64_t expected);

private:
  void push(int64_t bytes, int64_t unitBytes, bool written, bool perWorker);
  std::vector<OperandExtent> &out;
  std::string &why;
  bool failed = false;
};

using Describe = bool (*)(const int64_t *params, int64_t units, Extents &extents);

} // namespace sluice::extent
