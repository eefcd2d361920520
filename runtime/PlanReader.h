#pragma once
// Reads a plan from a stranger (law 7): header, FlatBuffers verifier, then the meaning of
// every offset, size, index and shape. What passes here can be executed without further
// checks.

#include "runtime/Plan.h"

#include <memory>

namespace sluice {

using PlanPtr = std::shared_ptr<const Plan>;

class PlanReader {
public:
  /// Maps the file; it must not change while the plan is in use.
  static Result<PlanPtr> readFile(const std::string &path);
  /// Copies the bytes. `name` is for messages.
  static Result<PlanPtr> readMemory(std::span<const uint8_t> file,
                                    const std::string &name = "plan in memory");

private:
  static Result<PlanPtr> finish(std::shared_ptr<Plan> plan, const std::string &name);
};

} // namespace sluice
