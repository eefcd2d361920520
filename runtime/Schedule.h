#pragma once
// What optimizers need to know of the number of updates done: rates and corrections. They
// change once per update, never per micro-batch.

#include "runtime/plan_generated.h"

#include <cstdint>
#include <string_view>

namespace sluice {

/// The rate of update number `t` (0 is the first), with lr' = lr * lr_scale and the
/// warm-up lasting w = round(warmup_steps * warmup_scale) updates. During warm-up lr' * t
/// / w, as in Hugging Face's get_*_schedule_with_warmup (the first update then has rate
/// 0), afterwards lr' times, with p = min(1, (t - w) / max(1, total - w)) and m =
/// min_ratio:
///
///   constant   1
///   linear     m + (1 - m) * (1 - p)
///   cosine     m + (1 - m) * (1 + cos(pi * p)) / 2
///   wsd        1 up to update total - decay_steps, then m + (1 - m) * f(q), where q goes
///              from 0 to 1 over the last decay_steps; f(q) = 1 - q, (1 + cos(pi * q)) /
///              2 or 1 - sqrt(q)
///   step       gamma^floor((t - w) / step_size), or gamma^(points not above t)
///   table      linear between the points (t, factor); constant outside them
///   one_cycle  PyTorch's OneCycleLR with cosines, without a warm-up: from 1 / div_factor
///              to 1 at update pct_start * total - 1, then down to 1 / div_factor /
///              final_div_factor at update total - 1
///
/// Computed in double, rounded once. Behind total_steps a schedule keeps its last value
/// (Hugging Face's cosine rises again).
/// `lr` is the group's, or that of the last of its changes.
double learningRate(const fbs::ParamGroup &group, int64_t t);

using HyperChanges = flatbuffers::Vector<flatbuffers::Offset<fbs::HyperChange>>;

/// The value the last change of `name` up to update `t` gives it; without one
/// `otherwise`.
double changedValue(const HyperChanges *changes, std::string_view name, int64_t t,
                    double otherwise);

/// 1 - beta^(updatesDone + 1), in double.
double biasCorrection(double beta, int64_t updatesDone);

/// What NAdam weighs the gradient and the first moment by at an update: (1 - mu_t) / (1 -
/// P_t) and mu_(t+1) / (1 - P_(t+1)), where t = updatesDone + 1, mu_t = beta1 * (1 -
/// 0.96^(t * momentumDecay) / 2) and P_t is the product of the first t of them (PyTorch).
/// `product` is P_updatesDone: each factor has the values that held at its update.
struct NadamWeights {
  double gradient, moment;
};
NadamWeights nadamWeights(double beta1, double momentumDecay, int64_t updatesDone,
                          double product);
/// The product after one update more.
double nextNadamProduct(double beta1, double momentumDecay, int64_t updatesDone,
                        double product);
/// The product when nothing has changed.
double nadamProduct(double beta1, double momentumDecay, int64_t updatesDone);

/// RAdam's rectification of the update; 0 while the variance cannot be trusted (rho_t <=
/// 5).
double radamRectification(double beta2, int64_t updatesDone);

} // namespace sluice
