#pragma once
// The kernels as functions; names, parameters and operands are documented in
// kernels/*Params.h.

#include <cstdint>

#define SLUICE_KERNEL(name)                                                              \
  void name(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,     \
            int64_t worker)

/// Those with code of their own where both operands are bf16.
#define SLUICE_PAIR_KERNELS                                                              \
  SLUICE_KERNEL(gemm);                                                                   \
  SLUICE_KERNEL(gemmPacked);                                                             \
  SLUICE_KERNEL(gemmPackB);                                                              \
  SLUICE_KERNEL(gemmSplitK);                                                             \
  SLUICE_KERNEL(attentionForward);                                                       \
  SLUICE_KERNEL(attentionGrad);                                                          \
  SLUICE_KERNEL(convForward);                                                            \
  SLUICE_KERNEL(convInputGrad);                                                          \
  SLUICE_KERNEL(convWeightGrad)

#define SLUICE_LEVEL_KERNELS                                                             \
  SLUICE_PAIR_KERNELS;                                                                   \
  SLUICE_KERNEL(sumSlices);                                                              \
  SLUICE_KERNEL(depthwiseForward);                                                       \
  SLUICE_KERNEL(depthwiseInputGrad);                                                     \
  SLUICE_KERNEL(depthwiseWeightGrad)

// Compiled once per feature level.
namespace sluice::v3 {
SLUICE_LEVEL_KERNELS;
}
namespace sluice::v4 {
SLUICE_LEVEL_KERNELS;
}
namespace sluice::dots {
SLUICE_PAIR_KERNELS;
}
namespace sluice::amx {
SLUICE_PAIR_KERNELS;
}

// Bound by memory: compiled once, for the lower level.
namespace sluice::v3 {
SLUICE_KERNEL(maxPool);
SLUICE_KERNEL(maxPoolGrad);
SLUICE_KERNEL(avgPool);
SLUICE_KERNEL(avgPoolGrad);
SLUICE_KERNEL(copyStrided);
SLUICE_KERNEL(fillElements);
SLUICE_KERNEL(gather);
SLUICE_KERNEL(gatherElements);
SLUICE_KERNEL(scatterAdd);
SLUICE_KERNEL(scatterElements);
SLUICE_KERNEL(scatterElementsAdd);
SLUICE_KERNEL(scatterElementsMax);
SLUICE_KERNEL(scatterElementsMin);
SLUICE_KERNEL(scatterElementsMul);
SLUICE_KERNEL(ctcLoss);
SLUICE_KERNEL(ctcLossGrad);
SLUICE_KERNEL(argReduce);
SLUICE_KERNEL(argReduceI64);
SLUICE_KERNEL(cumsum);
SLUICE_KERNEL(cumsumI64);
} // namespace sluice::v3
