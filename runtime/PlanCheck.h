#pragma once
// The meaning of a plan: what the FlatBuffers verifier cannot see.

#include "runtime/Plan.h"

#include <optional>

namespace sluice {

/// Where segments may lie in the file, in bytes.
struct SegmentRange {
  uint64_t begin = 0, end = 0;
};

/// Refuses (StatusCode::damaged) with the place and the rule that is broken. The buffer
/// must have passed the verifier.
Status checkPlan(const fbs::Plan &plan, SegmentRange segments);

// Parts of it, also used by runtime/ProgramCheck.cpp.

/// Bytes of a tensor of this type and shape, or nothing when the shape has a negative
/// dimension, more than 16 dimensions, or more bytes than fit.
std::optional<uint64_t> tensorBytes(DType type,
                                    const flatbuffers::Vector<int64_t> *shape);

/// [offset, offset + size) lies in [0, limit), without overflow.
constexpr bool liesInside(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

/// FlatBuffers verifies the alignment of the length of a vector, not of its elements.
template <class T> bool isAligned(const flatbuffers::Vector<T> *vector) {
  return !vector || reinterpret_cast<uintptr_t>(vector->Data()) % 8 == 0;
}

/// A plan without shared parts has at most size / 4 elements; one that shares them to
/// make a reader work without end is refused.
class VisitBudget {
public:
  explicit VisitBudget(uint64_t bytes) : left(bytes) {}
  bool take(uint64_t count) {
    if (count > left)
      return false;
    left -= count;
    return true;
  }

private:
  uint64_t left;
};

Status checkPrograms(const fbs::Plan &plan, VisitBudget &budget);
/// Copies of a program: where they lie, and that neither queue waits for ever.
Status checkCopies(const fbs::Plan &plan, const fbs::Program &program,
                   VisitBudget &budget);
/// Collectives of a program: where they lie.
Status checkCollectives(const fbs::Plan &plan, const fbs::Program &program,
                        VisitBudget &budget);
/// After checkPrograms: what plans for several ranks need.
Status checkRanks(const fbs::Plan &plan);
/// When groups are updated, after checkGroups of PlanCheck.
Status checkUpdates(const fbs::Plan &plan, VisitBudget &budget);
/// After checkPrograms.
Status checkVariants(const fbs::Plan &plan, VisitBudget &budget);

} // namespace sluice
