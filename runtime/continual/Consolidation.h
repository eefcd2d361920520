#pragma once
// What a plan with a penalty (`continual` of the spec) does at the end of a task: how
// important each element was becomes state, and the weights become the anchor.
//
//   ewc  F <- gamma F + F_new, or F_new beside a new anchor; F_new is the mean over
//        samples of squared gradients of single samples (Fisher.h)
//   si   Omega <- Omega + max(path, 0) / ((w - anchor)^2 + xi); path <- 0
//
// Everything is computed before anything is written.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"

#include <optional>

namespace sluice {

class FisherEstimate;

bool hasPenalty(const Plan &plan);

struct ConsolidateOptions {
  std::optional<int64_t> samples; // of the Fisher, in place of the plan's
  int64_t firstSample = 0;        // of the data, in its order
};

struct ConsolidateReport {
  int64_t tasks = 0;          // consolidations, this one included
  int64_t samples = 0;        // of the Fisher
  double importanceMean = 0;  // over all elements, after this one
  double importanceMost = 0;  // the largest
  double importanceAdded = 0; // mean of what is new
};

/// Ends a task. Of ewc on the Fisher of the data's first samples, at most all of them;
/// the source is left behind them. Every rank calls it with the same data. Refused inside
/// a window.
Result<ConsolidateReport> consolidate(Session &session, BatchSource &data,
                                      const ConsolidateOptions &options = {});
/// The same on a Fisher that has been estimated; of si without one.
Result<ConsolidateReport> consolidate(Session &session, const FisherEstimate *fisher);

/// lambda / 2 * sum over anchors and elements of importance * (w - anchor)^2, in double.
Result<double> penaltyValue(const Session &session);

/// Before the first step: the way of si begins at the weights there are.
Status beginPath(Session &session);

} // namespace sluice
