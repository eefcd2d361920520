// Attention whose operands are all bf16 by dot products of pairs (AVX512_BF16): the bits
// of the level below, which runs the rest.

#include "kernels/cpu/AttentionBackward.h"
#include "kernels/cpu/AttentionForward.h"
#include "kernels/cpu/AttentionPairs.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {

/// Blocks of pairs fit into the workspace of floats from here on.
static bool arePaired(const AttentionParams &p) {
  return p.type == format::kBf16 && p.depth >= 4 && p.valueDepth >= 4;
}

void attentionForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t worker) {
  auto p = readParams<AttentionParams>(params);
  if (!arePaired(p))
    return SLUICE_BELOW::attentionForward(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  Forward<Pairs> forward(p, buffers);
  for (int64_t u = begin; u < end; ++u)
    forward.unit(u);
}

void attentionGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t worker) {
  auto g = readParams<AttentionGradParams>(params);
  if (!arePaired(g.of) || g.doType != format::kBf16 || g.of.outType != format::kBf16)
    return SLUICE_BELOW::attentionGrad(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  Backward<Pairs> backward(g, buffers);
  for (int64_t u = begin; u < end; ++u)
    backward.unit(u);
}

} // namespace sluice::SLUICE_LEVEL
