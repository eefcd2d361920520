// Updates that were judged outliers, taken back so that they can run again: what a
// program changes although it skips its update is kept from before it.

#include "runtime/Session.h"

#include <cstring>

namespace sluice {

/// The plan's own scalars and histories. Parameters, moments and statistics of an update
/// that is skipped stay as they are.
template <class Visit> void Session::visitOwnState(const Visit &visit) {
  for (const fbs::StateTensor *tensor : *planPtr->raw().state())
    if (tensor->role() == fbs::Role::control && tensor->saved() && tensor->size() > 0)
      visit(tensorData(*tensor), tensor->size());
}

void Session::keepForRerun() {
  if (!planPtr->raw().reruns_outliers())
    return;
  keptState.clear();
  visitOwnState([&](const uint8_t *data, size_t size) {
    keptState.insert(keptState.end(), data, data + size);
  });
}

void Session::takeBackOutlier(int64_t firstSample) {
  size_t at = 0;
  visitOwnState([&](uint8_t *data, size_t size) {
    std::memcpy(data, keptState.data() + at, size);
    at += size;
  });
  --updatesDone;
  samplesDone = windowFirst = firstSample;
}

} // namespace sluice
