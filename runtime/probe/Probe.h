#pragma once
// Estimators of the Hessian's diagonal over the program 'probe', which gives gradients.
// They read weights and data and leave the session's state as it was, bit for bit.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"
#include "runtime/probe/GroupCoupling.h"
#include "runtime/probe/Importance.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

/// Which labels the Fisher is of.
enum class ProbeLabels {
  given,   // of the data: the empirical Fisher
  sampled, // one draw for each row from the model's own distribution
  all,     // every class, weighted by its probability: the exact Fisher
};

struct ProbeOptions {
  int64_t samples = 0; // of the data, in the source's order
  ImportanceBlocks blocks = ImportanceBlocks::tiles;
  ProbeLabels labels = ProbeLabels::given; // of the Fisher
  int64_t draws = 32;                      // of Hutchinson's estimator
  std::optional<double> eps; // its distance; default: 1% of the weights' root mean square
  uint64_t seed = 0;         // of drawn labels and signs
  std::vector<ParameterSet> groups; // in order, for their coupling
};

struct ProbeResult {
  Importance importance;
  std::optional<GroupCoupling> coupling; // of two groups or more; of the Fisher
  double lossSum = 0, lossCount = 0;     // at the weights, of what was probed
  int64_t windows = 0;                   // independent estimates, for the errors
  double eps = 0;                        // of Hutchinson's estimator
  int64_t updates = 0;                   // done when moments were read
};

/// Mean over the samples of the squared gradient of each sample's loss, divided by what
/// the samples count in the loss (so that of losses over positions too it is the diagonal
/// of the mean loss). One sample at a time: the squared gradient of a batch is another
/// thing. The errors are those of the mean of up to 32 windows of samples (8 above 256 Mi
/// weights on).
Result<ProbeResult> probeFisher(Session &session, BatchSource &source,
                                const ProbeOptions &options);

/// Mean over draws z of random signs of z * (g(w + eps z) - g(w - eps z)) / (2 eps),
/// where g is the gradient of the mean loss of the samples (M. F. Hutchinson, 1989). The
/// errors are those of the draws, not of the choice of the samples.
Result<ProbeResult> probeHutchinson(Session &session, BatchSource &source,
                                    const ProbeOptions &options);

/// The second moment of Adam and its kin, corrected for its start, times what a batch
/// counts: close to the Fisher where gradients are mostly noise. Costs nothing, and has
/// no error.
Result<ProbeResult> probeMoments(const Session &session, ImportanceBlocks blocks);

} // namespace sluice
