#pragma once
// How replayed samples enter a micro-batch: how many there are, what their losses are
// weighted by, and which inputs of the program say so.

#include "runtime/BatchSource.h"
#include "runtime/Plan.h"
#include "runtime/replay/ReplayBuffer.h"

#include <optional>

namespace sluice {

inline constexpr std::string_view replayWeightInput = "replay/weight";
inline constexpr std::string_view replayMatchInput = "replay/match";
inline constexpr std::string_view replayLogitsInput = "replay/logits";
inline bool isReplayInput(std::string_view name) { return name.starts_with("replay/"); }

struct ReplayMix {
  int64_t samples = 0; ///< replayed ones of a micro-batch
  /// DER++: of the squared distance to the logits of then; the loss of other draws.
  std::optional<double> logitsWeight;
  double labelsWeight = 1;
  std::optional<int64_t> label = {}; ///< samples of this class alone
};

/// One replayed sample of a micro-batch: `weight` of its loss, `match` of its distance to
/// the logits that were kept.
struct ReplayShare {
  int64_t index = 0;
  float weight = 1, match = 0;
};

/// The draws of the micro-batch `key` beside `fresh` new samples. Weights of importance
/// as they are; of DER++ two independent draws, weighted so that the mean over the
/// micro-batch is loss(new) + alpha distance(first draw) + beta loss(second draw), each a
/// mean of its own (Buzzega et al. 2020). `freshWeight`: of each new sample's loss.
Result<std::vector<ReplayShare>> drawShares(const ReplayBuffer &buffer,
                                            const ReplayMix &mix, int64_t fresh,
                                            uint64_t key, float &freshWeight);

/// Of a plan with `continual.replay`; null fields without.
ReplayMix mixOf(const Plan &plan);
/// Refused where the plan has no replay.
Result<ReplayBuffer> makeReplayBuffer(const Plan &plan, uint64_t seed);

/// Inputs of the program that trains that data has, for batches of `batch` samples; 0:
/// the plan's.
std::vector<InputSpec> dataInputs(const Plan &plan, int64_t batch = 0);

} // namespace sluice
