#pragma once
// Where the reservations of a session begin.

#include "runtime/plan_generated.h"

namespace sluice {

struct Arenas {
  uint8_t *state = nullptr, *step = nullptr;
  uint8_t *hostState = nullptr, *hostStep = nullptr;

  uint8_t *of(fbs::Space space) const {
    switch (space) {
    case fbs::Space::state:
      return state;
    case fbs::Space::host_state:
      return hostState;
    case fbs::Space::host_step:
      return hostStep;
    case fbs::Space::step:
      break;
    }
    return step;
  }
};

} // namespace sluice
