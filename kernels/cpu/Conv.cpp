// Convolution and its gradient in x as implicit matrix products. Compiled once per
// feature level.

#include "kernels/cpu/ConvUnits.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"

namespace sluice::SLUICE_LEVEL {

void convForward(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<ConvParams>(params);
  FlushDenormals guard(usesPairs(p.sourceType, p.wType));
  runConvUnits<SingleTaps>(p, /*inputGrad=*/false, buffers, begin, end);
}

void convInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t) {
  auto p = readParams<ConvParams>(params);
  FlushDenormals guard(usesPairs(p.sourceType, p.wType));
  runConvUnits<SingleTaps>(p, /*inputGrad=*/true, buffers, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
