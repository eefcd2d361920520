#pragma once
// Geometries of convolutions.

#include "kernels/Params.h"

#include <initializer_list>

namespace sluice::test {

inline int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

struct Spatial {
  int64_t in, kernel, stride = 1, dilation = 1, pad = 0, padEnd = 0;
};

inline ConvGeometry geometry(int64_t n, int64_t c, int64_t m, int64_t groups,
                             std::initializer_list<Spatial> dims) {
  ConvGeometry g;
  g.n = n, g.c = c, g.m = m, g.groups = groups;
  int d = 3 - static_cast<int>(dims.size());
  for (const Spatial &s : dims) {
    g.in[d] = s.in, g.kernel[d] = s.kernel, g.stride[d] = s.stride,
    g.dilation[d] = s.dilation;
    g.pad[d] = s.pad;
    int64_t span = s.in + s.pad + s.padEnd - (s.kernel - 1) * s.dilation - 1;
    g.out[d] = span < 0 ? 0 : span / s.stride + 1;
    ++d;
  }
  return g;
}

} // namespace sluice::test
