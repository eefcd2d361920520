#pragma once
// What memory a training step needs and at what price in time: plans that are really
// ordered and placed, without code and without the values of any weight.

#include "codegen/Compile.h"
#include "codegen/StepTimes.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {

/// A plan: bytes of its arena and its predicted time.
struct MemoryPoint {
  int64_t arenaBytes = 0;
  double stepUs = 0;
  int64_t hostBytes = 0; ///< beside the arena: what lies in the host's memory
  double linkBusy = 0;   ///< part of the training entry's time in which copies run
  /// Parts of the training entry's time: by matrix, vector, memory, overhead; `link`:
  /// what it waits for copies.
  std::map<std::string, double> boundBy = {};
  std::vector<ProgramTimes> programs = {}; ///< of an update
};

/// Of one shape.
struct MemoryCurve {
  std::string name;                     ///< of the shape, where there are several
  int64_t stateBytes = 0;               ///< of the plan that keeps everything
  int64_t inputBytes = 0;               ///< of one batch
  std::map<std::string, int64_t> arena; ///< of the plan that runs nothing again
  std::map<std::string, int64_t> state; ///< by role: parameter, master, moment, ...
  /// Plans none of which another beats in both; bytes rise, times fall.
  std::vector<MemoryPoint> points;
  std::string peak;                     ///< of that plan: when, and what is live then
  int64_t operations = 0, launches = 0; ///< of the training entry

  int64_t smallestBytes() const { return points.empty() ? 0 : points.front().arenaBytes; }
  /// The fastest within a budget; null if none fits.
  const MemoryPoint *fastestWithin(int64_t bytes) const;
};

struct FitOptions {
  CompileOptions compile;
  int64_t plans = 12; ///< besides the smallest and the fastest
  /// Only the curve of this shape has points.
  std::optional<size_t> only = {};
  /// Whether a plan fits in so many bytes is all that is asked: where no tensors move,
  /// the curve has one point, within them if one does, of a size that rises with the
  /// shape.
  std::optional<int64_t> within = {};
};

/// Takes imported modules, one for each shape, through all stages up to plans. The arena
/// of each has room for the state of all.
Status findMemoryCurves(llvm::ArrayRef<CompileBucket> buckets, const FitOptions &options,
                        std::vector<MemoryCurve> &curves);

/// What is sought, and what is known before anything is tried.
struct SizeSearch {
  int64_t start = 1, startBytes = 0; ///< a size and its bytes
  int64_t fixedBytes = 0;            ///< of any size
  int64_t most = 1;                  ///< the largest that is tried
  int64_t budgetBytes = 0;
};

struct LargestSize {
  int64_t size = 0;      ///< 0: not even 1
  bool isProved = false; ///< size + 1 has been tried and does not fit
  std::string limit;     ///< why a larger size is none, where it is not for its bytes
  std::vector<std::pair<int64_t, int64_t>> tried; ///< size, bytes; -1: refused
};

/// The largest size whose bytes are within the budget, in some twelve calls of `bytesOf`
/// at most, fewer where it is nearly affine. A size that is refused is taken as too
/// large; an error only if every one is.
Status findLargest(const SizeSearch &search,
                   llvm::function_ref<Status(int64_t size, int64_t &bytes)> bytesOf,
                   LargestSize &largest);

/// The smallest budget of which a share is at least so many bytes.
int64_t budgetWithShare(double share, int64_t bytes);

} // namespace sluice
