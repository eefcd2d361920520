#pragma once
// Learning rates by the number of updates done; they change once per update, never per
// micro-batch.

#include "runtime/plan_generated.h"

#include <cstdint>

namespace sluice {

/// The rate of update number `updatesDone` (0 is the first), with lr' = lr * lr_scale and
/// the warm-up lasting w = round(warmup_steps * warmup_scale) updates. During warm-up lr'
/// * t / w, as in Hugging Face's get_*_schedule_with_warmup (the first update then has
/// rate 0), afterwards with p = min(1, (t - w) / max(1, total - w)):
///
///   constant  lr'
///   linear    lr' * (1 - p)
///   cosine    lr' * (1 + cos(pi * p)) / 2
///
/// Computed in double, rounded once. Behind total_steps the last two stay 0 (Hugging
/// Face's cosine rises again).
double learningRate(const fbs::ParamGroup &group, int64_t updatesDone);

/// 1 - beta^(updatesDone + 1), in double.
double biasCorrection(double beta, int64_t updatesDone);

} // namespace sluice
