#pragma once
// Consolidation while data streams in: whenever a share of an epoch has been new
// (`continual.ewc.refresh`), on the samples trained last.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"

namespace sluice {

class Refresh {
public:
  /// Every `share` of the source's samples, counted from the first sample ever seen, so
  /// that a run that is resumed refreshes where one that was not does.
  Refresh(const Session &session, const BatchSource &source);

  /// After an update; the source, made for training, is back where it was.
  Status after(Session &session, BatchSource &source);

  int64_t count() const { return done; }

private:
  int64_t interval = 0; // samples; 0: never
  int64_t last = 0;     // samples of the session at the update before
  int64_t done = 0;
};

} // namespace sluice
