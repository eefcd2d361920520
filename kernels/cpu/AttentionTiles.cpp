// Attention whose operands are all bf16 on tiles; the level below runs the rest, heads of
// few elements among it, which would not fill a step.

#include "kernels/cpu/AttentionTiles.h"
#include "kernels/cpu/AttentionBackward.h"
#include "kernels/cpu/AttentionForward.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {

void attentionForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t worker) {
  auto p = readParams<AttentionParams>(params);
  if (!attentionFillsTiles(p))
    return SLUICE_BELOW::attentionForward(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  Forward<Tiles> forward(p, buffers);
  for (int64_t u = begin; u < end; ++u)
    forward.unit(u);
}

void attentionGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t worker) {
  auto g = readParams<AttentionGradParams>(params);
  if (!attentionFillsTiles(g.of) || g.doType != format::kBf16 ||
      g.of.outType != format::kBf16)
    return SLUICE_BELOW::attentionGrad(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  Backward<Tiles> backward(g, buffers);
  for (int64_t u = begin; u < end; ++u)
    backward.unit(u);
}

} // namespace sluice::SLUICE_LEVEL
