#pragma once
// A copy of a session's whole state: to go back to it, and for predictions while another
// session learns. Threads may share one: what is taken and what is applied is always the
// state between two updates, whole.

#include "runtime/Session.h"

#include <memory>
#include <mutex>

namespace sluice {

class StateSnapshot {
public:
  /// Room for the state of a plan; nothing is taken yet.
  explicit StateSnapshot(PlanPtr plan);

  /// Copies the session's state. Called by the thread that trains it. Refused inside a
  /// window, and for a session of another plan.
  Status take(const Session &session);
  /// Makes it the state of a session of a plan with the same state, which may be another
  /// one: its counters, too. Refused before anything was taken.
  Status apply(Session &session) const;

  /// How often it was taken; 0: never.
  int64_t version() const;
  int64_t updates() const; ///< of what was taken
  uint64_t bytes() const { return content.size(); }

private:
  Status check(const Session &session) const;

  PlanPtr plan;
  mutable std::mutex mutex;
  std::vector<uint8_t> content; // the tensors of the plan's state, one behind the other
  int64_t taken = 0, updateCount = 0, sampleCount = 0;
  uint64_t seed = 0;
  std::vector<std::pair<std::string, std::string>> changes;
};

} // namespace sluice
