#include "kernels/reference/Attention.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace sluice::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Indices {
  const AttentionParams &p;

  int64_t kvHead(int64_t h) const { return h / (p.heads / p.kvHeads); }
  int64_t q(int64_t b, int64_t h, int64_t i) const {
    return b * p.qBatch + h * p.qHead + i * p.qRow;
  }
  int64_t k(int64_t b, int64_t h, int64_t j) const {
    return b * p.kBatch + kvHead(h) * p.kHead + j * p.kRow;
  }
  int64_t v(int64_t b, int64_t h, int64_t j) const {
    return b * p.vBatch + kvHead(h) * p.vHead + j * p.vRow;
  }
  int64_t row(int64_t b, int64_t h, int64_t i) const {
    return (b * p.heads + h) * p.queries + i;
  }
  int64_t keyRow(int64_t b, int64_t h, int64_t j) const {
    return (b * p.kvHeads + kvHead(h)) * p.keys + j;
  }
};

double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Probabilities of a row before anything is dropped, and its statistics.
struct Row {
  std::vector<double> probability;
  double most = -infinity, sum = 0;

  Row(const AttentionParams &p, const AttentionInput &in, int64_t b, int64_t h,
      int64_t i) {
    Indices at{p};
    auto bits = static_cast<uint32_t>(p.scaleBits);
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    std::vector<double> t(p.keys);
    for (int64_t j = 0; j < p.keys; ++j) {
      t[j] = scale * dot(&in.q[at.q(b, h, i)], &in.k[at.k(b, h, j)], p.depth);
      if (p.masked)
        t[j] += in.mask[b * p.maskBatch + h * p.maskHead + i * p.maskRow + j * p.maskCol];
      if (p.causal && j > i + p.offset)
        t[j] = -infinity;
      most = std::max(most, t[j]);
    }
    probability.assign(p.keys, 0.0);
    if (most == -infinity)
      return;
    for (double x : t)
      sum += std::exp(x - most);
    for (int64_t j = 0; j < p.keys; ++j)
      probability[j] = std::exp(t[j] - most) / sum;
  }
};

template <typename F> void forEachRow(const AttentionParams &p, F f) {
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.queries; ++i)
        f(b, h, i);
}

double keptAt(const AttentionInput &in, int64_t element) {
  return in.keep.empty() ? 1.0 : in.keep[element];
}

} // namespace

AttentionValue attention(const AttentionParams &p, const AttentionInput &in) {
  Indices at{p};
  AttentionValue value;
  value.out.assign(p.batch * p.heads * p.queries * p.valueDepth, 0.0);
  value.stats.assign(2 * p.batch * p.heads * p.queries, 0.0);
  forEachRow(p, [&](int64_t b, int64_t h, int64_t i) {
    Row row(p, in, b, h, i);
    int64_t r = at.row(b, h, i);
    double *stats = &value.stats[2 * r - i];
    stats[0] = row.most, stats[p.queries] = row.sum;
    for (int64_t j = 0; j < p.keys; ++j)
      for (int64_t d = 0; d < p.valueDepth; ++d)
        value.out[r * p.valueDepth + d] +=
            row.probability[j] * keptAt(in, r * p.keys + j) * in.v[at.v(b, h, j) + d];
  });
  return value;
}

AttentionGradValue attentionGrad(const AttentionParams &p, const AttentionInput &in,
                                 const std::vector<double> &dOut) {
  Indices at{p};
  std::vector<double> out = attention(p, in).out;
  AttentionGradValue value;
  value.dq.assign(p.batch * p.heads * p.queries * p.depth, 0.0);
  value.dk.assign(p.batch * p.kvHeads * p.keys * p.depth, 0.0);
  value.dv.assign(p.batch * p.kvHeads * p.keys * p.valueDepth, 0.0);
  auto bits = static_cast<uint32_t>(p.scaleBits);
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  forEachRow(p, [&](int64_t b, int64_t h, int64_t i) {
    Row row(p, in, b, h, i);
    int64_t r = at.row(b, h, i);
    const double *grad = &dOut[r * p.valueDepth];
    double delta = dot(grad, &out[r * p.valueDepth], p.valueDepth);
    for (int64_t j = 0; j < p.keys; ++j) {
      double kept = keptAt(in, r * p.keys + j), probability = row.probability[j];
      double dp = dot(grad, &in.v[at.v(b, h, j)], p.valueDepth) * kept;
      double ds = scale * probability * (dp - delta);
      int64_t key = at.keyRow(b, h, j);
      for (int64_t d = 0; d < p.valueDepth; ++d)
        value.dv[key * p.valueDepth + d] += probability * kept * grad[d];
      for (int64_t d = 0; d < p.depth; ++d) {
        value.dq[r * p.depth + d] += ds * in.k[at.k(b, h, j) + d];
        value.dk[key * p.depth + d] += ds * in.q[at.q(b, h, i) + d];
      }
    }
  });
  return value;
}

} // namespace sluice::reference
