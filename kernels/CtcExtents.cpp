#include "kernels/CtcExtents.h"
#include "kernels/Params.h"

namespace sluice::extent {

static bool describe(const int64_t *params, int64_t units, bool isGrad, Extents &e) {
  auto p = unpackParams<CtcParams>(params);
  int64_t logProbs = product({p.batch, p.frames, p.classes, 4});
  int64_t states = isCount(p.labels) && isCount(p.frames)
                       ? product({p.labels + p.labels + 1, isGrad ? p.frames + 2 : 2, 8})
                       : -1;
  if (logProbs < 0 || states < 0)
    return e.refuse("sizes must be at least 0 and their product at most 2^50");
  if (p.blank < 0 || p.blank >= p.classes)
    return e.refuse("'blank' must be one of the classes");
  if (!isFlag(p.zeroInfinity) || !isFlag(p.perLabel))
    return e.refuse("'zeroInfinity' and 'perLabel' must be 0 or 1");
  e.input(logProbs);
  e.input(product({p.batch, p.labels, 8}));
  e.input(product({p.batch, 8}));
  e.input(product({p.batch, 8}));
  e.output(isGrad ? logProbs : product({p.batch, 4}));
  e.workspace(p.batch > 0 ? states : 0);
  return e.done(units, ctcUnits(p));
}

bool describeCtcLoss(const int64_t *params, int64_t units, Extents &e) {
  return describe(params, units, /*isGrad=*/false, e);
}

bool describeCtcLossGrad(const int64_t *params, int64_t units, Extents &e) {
  return describe(params, units, /*isGrad=*/true, e);
}

} // namespace sluice::extent
