#pragma once
// Attention and its gradient from their definition, in double, over whole rows of scores.

#include "kernels/AttentionParams.h"

#include <vector>

namespace sluice::reference {

/// Operands as flat arrays that the strides of the parameters index. `keep` holds 0 or
/// what a kept probability is multiplied by, [batch, heads, queries, keys]; empty: 1.
struct AttentionInput {
  std::vector<double> q, k, v, mask, keep;
};

struct AttentionValue {
  std::vector<double> out;   ///< dense, [batch, heads, queries, valueDepth]
  std::vector<double> stats; ///< [batch, heads, 2, queries]
};
AttentionValue attention(const AttentionParams &p, const AttentionInput &in);

struct AttentionGradValue {
  std::vector<double> dq, dk, dv; ///< dense
};
/// `dOut` dense as the result.
AttentionGradValue attentionGrad(const AttentionParams &p, const AttentionInput &in,
                                 const std::vector<double> &dOut);

} // namespace sluice::reference
