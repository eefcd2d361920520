// Looks through the plans of an OffloadFrontier, the most promising first, by bounds
// where a plan has not been ordered yet: what is found is what looking at all of them
// would find.

#include "codegen/OffloadFrontier.h"

#include <limits>
#include <map>
#include <set>

using namespace mlir;

namespace sluice {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr size_t mostPlacements = 12; // really placed, when looking for the smallest

/// An entry, or a candidate, which goes before entries that it may equal.
struct Waiting {
  double least; // time, or bytes
  const OffloadEntry *entry;
  int64_t member;

  bool operator<(const Waiting &other) const {
    if (least != other.least)
      return least < other.least;
    if (!entry || !other.entry)
      return !entry && (other.entry || member < other.member);
    return *entry < *other.entry;
  }
};

/// Calls `visit` for entries by rising `entryLeast`; candidates, by `candidateLeast`,
/// become entries on the way.
Status
visitInOrder(OffloadFrontier &plans,
             llvm::function_ref<double(const OffloadEntry &)> entryLeast,
             llvm::function_ref<double(const OffloadCandidate &)> candidateLeast,
             llvm::function_ref<Status(const OffloadEntry &, bool &goesOn)> visit) {
  std::set<Waiting> waiting;
  std::map<int64_t, OffloadCandidate> candidates;
  for (const OffloadCandidate &candidate : plans.candidates) {
    candidates[candidate.member] = candidate;
    waiting.insert({candidateLeast(candidate), nullptr, candidate.member});
  }
  size_t known = 0; // entries that wait, or did
  for (;;) {
    for (; known < plans.entries.size(); ++known)
      waiting.insert({entryLeast(plans.entries[known]), &plans.entries[known], 0});
    if (waiting.empty() || waiting.begin()->least == never)
      return Status::success();
    Waiting next = *waiting.begin();
    waiting.erase(waiting.begin());
    bool goesOn = true;
    Status status =
        next.entry ? visit(*next.entry, goesOn) : plans.expand(candidates[next.member]);
    if (!status.ok() || !goesOn)
      return status;
  }
}

Status placedBytes(OffloadFrontier &plans, const OffloadEntry &entry,
                   std::optional<int64_t> enough, int64_t &bytes) {
  OwningOpRef<ModuleOp> planned;
  Status status = plans.place(entry, enough, planned);
  if (status.ok())
    bytes = deviceBytesOf(*planned);
  return status;
}

} // namespace

double OffloadFrontier::leastUs(const OffloadCandidate &candidate,
                                int64_t budgetBytes) const {
  if (leastDeviceBytes(candidate) > budgetBytes)
    return never;
  // What has no room at the instant that needs most goes over the link in each run.
  int64_t moved = residentStateBytes + candidate.leastBytes - budgetBytes;
  double us = candidate.leastUs;
  if (moved > 0)
    us = std::max(us, leastLinkUs(moved, readOnlyBytes, link));
  return plainUs + stepRuns * (us - stepUs);
}

Status OffloadFrontier::findFastest(int64_t budgetBytes,
                                    std::optional<OffloadEntry> &fastest) {
  fastest.reset();
  return visitInOrder(
      *this,
      [&](const OffloadEntry &entry) {
        return entry.deviceBytes <= budgetBytes ? entry.timeUs : never;
      },
      [&](const OffloadCandidate &candidate) { return leastUs(candidate, budgetBytes); },
      [&](const OffloadEntry &entry, bool &goesOn) {
        int64_t bytes = 0;
        Status status = placedBytes(*this, entry, budgetBytes, bytes);
        goesOn = bytes > budgetBytes;
        if (status.ok() && !goesOn)
          fastest = entry;
        return status;
      });
}

Status OffloadFrontier::findSmallest(std::optional<OffloadEntry> &smallest) {
  smallest.reset();
  int64_t least = std::numeric_limits<int64_t>::max();
  size_t tried = 0;
  return visitInOrder(
      *this, [](const OffloadEntry &entry) { return double(entry.deviceBytes); },
      [&](const OffloadCandidate &candidate) {
        return double(leastDeviceBytes(candidate));
      },
      [&](const OffloadEntry &entry, bool &goesOn) {
        goesOn = entry.deviceBytes < least && tried++ < mostPlacements;
        if (!goesOn)
          return Status::success();
        // Only what is smaller than the best so far is packed as tightly as can be.
        int64_t bytes = 0;
        std::optional<int64_t> enough;
        if (smallest)
          enough = least - 1;
        Status status = placedBytes(*this, entry, enough, bytes);
        if (status.ok() && smallest && bytes < least)
          status = placedBytes(*this, entry, std::nullopt, bytes);
        if (status.ok() && bytes < least)
          smallest = entry, least = bytes;
        return status;
      });
}

} // namespace sluice
