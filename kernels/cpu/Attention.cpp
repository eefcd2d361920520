// Fused attention and its gradient by fused multiply-adds of floats, whatever is stored.

#include "kernels/cpu/AttentionBackward.h"
#include "kernels/cpu/AttentionForward.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {

void attentionForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t) {
  auto p = readParams<AttentionParams>(params);
  FlushDenormals guard(p.type == format::kBf16);
  byFormat(p.type, [&]<typename S>(S) {
    Forward<Singles<S>> forward(p, buffers);
    for (int64_t u = begin; u < end; ++u)
      forward.unit(u);
  });
}

void attentionGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t) {
  auto g = readParams<AttentionGradParams>(params);
  FlushDenormals guard(g.of.type == format::kBf16);
  byFormat(g.of.type, [&]<typename S>(S) {
    Backward<Singles<S>> backward(g, buffers);
    for (int64_t u = begin; u < end; ++u)
      backward.unit(u);
  });
}

} // namespace sluice::SLUICE_LEVEL
