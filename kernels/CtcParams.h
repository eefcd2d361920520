#pragma once
// Parameters of the kernels of the CTC loss.

#include <cstdint>

namespace sluice {

/// ctc_loss_f32, ctc_loss_grad_f32: log_probs [batch, frames, classes] f32, targets
/// [batch, labels] i64, input_lengths [batch] i64, target_lengths [batch] i64; then loss
/// [batch] f32, or its gradient in log_probs; then a workspace. Lengths are cut to what
/// there is, and a target ends at its first label outside [0, classes). With zeroInfinity
/// a sample without an alignment counts as 0, with perLabel each is divided by the length
/// of its target. Computed in double, in the logarithm (Graves et al., 2006). Units:
/// samples.
struct CtcParams {
  int64_t batch = 1, frames = 0, classes = 1, labels = 0;
  int64_t blank = 0, zeroInfinity = 0, perLabel = 0;
};

inline int64_t ctcUnits(const CtcParams &p) { return p.batch; }
/// Of each worker: rows of 2 * labels + 1 states.
inline int64_t ctcLossWorkspace(const CtcParams &p) { return 2 * (2 * p.labels + 1) * 8; }
inline int64_t ctcGradWorkspace(const CtcParams &p) {
  return (p.frames + 2) * (2 * p.labels + 1) * 8;
}

} // namespace sluice
