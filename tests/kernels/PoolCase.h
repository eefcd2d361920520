#pragma once
// Geometries of pools.

#include "kernels/Params.h"

#include <initializer_list>

namespace sluice::test {

inline int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

struct Spatial {
  int64_t in, kernel, stride = 1, dilation = 1, pad = 0, padEnd = 0;
  bool ceil = false;
};

inline PoolParams pool(int64_t planes, std::initializer_list<Spatial> dims) {
  PoolParams p;
  p.planes = planes;
  int d = 3 - static_cast<int>(dims.size());
  for (const Spatial &s : dims) {
    p.in[d] = s.in, p.kernel[d] = s.kernel, p.stride[d] = s.stride,
    p.dilation[d] = s.dilation;
    p.pad[d] = s.pad, p.padEnd[d] = s.padEnd;
    int64_t span = s.in + s.pad + s.padEnd - (s.kernel - 1) * s.dilation - 1;
    p.out[d] = span < 0 ? 0 : (span + (s.ceil ? s.stride - 1 : 0)) / s.stride + 1;
    if (s.ceil &&
        (p.out[d] - 1) * s.stride >= s.in + s.pad) // no window starts in the end pad
      --p.out[d];
    ++d;
  }
  return p;
}

} // namespace sluice::test
