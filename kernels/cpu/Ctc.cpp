// The CTC loss of one sample by its forward and backward variables, in the logarithm: the
// probabilities of long alignments are far below what a double can hold. States are the
// labels with blanks between and around them.

#include "kernels/CtcParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

constexpr double kInfinity = __builtin_huge_val();

// Of our own, so that no library decides about bits.

/// e^x for x <= 0 (a little above by rounding), to about 2 ulp.
double expOf(double x) {
  if (!(x >= -700.0))
    return x != x ? x : 0.0;
  if (x >= 700.0) // of no probabilities
    return kInfinity;
  auto n = static_cast<int64_t>(x * 0x1.71547652b82fep0 - 0.5);
  double scale = static_cast<double>(n);
  double r = (x - scale * 0x1.62e42fefa3800p-1) - scale * 0x1.ef35793c76730p-45;
  double sum = 1.0;
  for (int k = 14; k > 0; --k)
    sum = 1.0 + sum * r / static_cast<double>(k);
  auto bits = static_cast<uint64_t>(1023 + n) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return sum * power;
}

/// The logarithm of x in [1, 4).
double logOf(double x) {
  double base = 0.0;
  for (; x > 0x1.6a09e667f3bcdp0; x *= 0.5)
    base += 0x1.62e42fefa39efp-1;
  double z = (x - 1.0) / (x + 1.0), square = z * z, sum = 0.0;
  for (int k = 21; k > 0; k -= 2)
    sum = sum * square + 1.0 / static_cast<double>(k);
  return base + 2.0 * z * sum;
}

/// log(e^a + e^b + e^c)
double logSum(double a, double b, double c) {
  double most = a > b ? a : b;
  most = c > most ? c : most;
  if (most == -kInfinity)
    return most;
  return most + logOf(expOf(a - most) + expOf(b - most) + expOf(c - most));
}

/// One sample, seen as frames by states.
class Alignment {
public:
  Alignment(const CtcParams &p, void *const *buffers, int64_t sample)
      : logProbs(static_cast<const float *>(buffers[0]) + sample * p.frames * p.classes),
        labels(static_cast<const int64_t *>(buffers[1]) + sample * p.labels),
        classes(p.classes), blank(p.blank) {
    frames = within(static_cast<const int64_t *>(buffers[2])[sample], p.frames);
    int64_t most = within(static_cast<const int64_t *>(buffers[3])[sample], p.labels);
    while (length < most && labels[length] >= 0 && labels[length] < classes)
      ++length;
    states = 2 * length + 1;
  }

  int64_t frames, length = 0, states;

  int64_t label(int64_t s) const { return s % 2 ? labels[s / 2] : blank; }
  double emission(int64_t t, int64_t s) const {
    return static_cast<double>(logProbs[t * classes + label(s)]);
  }
  /// A blank may be left out between labels that differ.
  bool skips(int64_t s) const {
    return s >= 2 && label(s) != blank && label(s) != label(s - 2);
  }

  /// Log probabilities of all ways to state s of frame t, emissions up to t included.
  void forward(int64_t t, const double *before, double *row) const {
    for (int64_t s = 0; s < states; ++s) {
      double ways = t > 0 ? logSum(before[s], s > 0 ? before[s - 1] : -kInfinity,
                                   skips(s) ? before[s - 2] : -kInfinity)
                          : (s < 2 ? 0.0 : -kInfinity);
      row[s] = ways + emission(t, s);
    }
  }
  /// Of all ways from state s of frame t to the end, without the emission at t. `after`
  /// are those of t + 1.
  void backward(int64_t t, const double *after, double *row) const {
    auto next = [&](int64_t s, bool allowed) {
      return allowed ? after[s] + emission(t + 1, s) : -kInfinity;
    };
    for (int64_t s = 0; s < states; ++s)
      row[s] = t == frames - 1 ? (s >= states - 2 ? 0.0 : -kInfinity)
                               : logSum(next(s, true), next(s + 1, s + 1 < states),
                                        next(s + 2, s + 2 < states && skips(s + 2)));
  }
  double loss(const double *last) const {
    if (frames == 0)
      return length == 0 ? 0.0 : kInfinity;
    return -logSum(last[states - 1], states > 1 ? last[states - 2] : -kInfinity,
                   -kInfinity);
  }
  double share(const CtcParams &p) const {
    return p.perLabel && length > 1 ? 1.0 / static_cast<double>(length) : 1.0;
  }

private:
  static int64_t within(int64_t x, int64_t most) {
    return x < 0 ? 0 : x > most ? most : x;
  }
  const float *logProbs;
  const int64_t *labels;
  int64_t classes, blank;
};

} // namespace

void ctcLoss(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<CtcParams>(params);
  auto *loss = static_cast<float *>(buffers[4]);
  auto *rows = static_cast<double *>(buffers[5]);
  for (int64_t sample = begin; sample < end; ++sample) {
    Alignment a(p, buffers, sample);
    for (int64_t t = 0; t < a.frames; ++t)
      a.forward(t, rows + (t + 1) % 2 * a.states, rows + t % 2 * a.states);
    double value = a.loss(rows + (a.frames + 1) % 2 * a.states);
    bool dropped = p.zeroInfinity && value == kInfinity;
    loss[sample] = dropped ? 0.0f : static_cast<float>(value * a.share(p));
  }
}

void ctcLossGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<CtcParams>(params);
  auto *rows = static_cast<double *>(buffers[5]);
  for (int64_t sample = begin; sample < end; ++sample) {
    Alignment a(p, buffers, sample);
    auto *grad = static_cast<float *>(buffers[4]) + sample * p.frames * p.classes;
    for (int64_t i = 0; i < p.frames * p.classes; ++i)
      grad[i] = 0.0f;
    for (int64_t t = 0; t < a.frames; ++t)
      a.forward(t, rows + (t - 1) * a.states, rows + t * a.states);
    double loss = a.loss(rows + (a.frames - 1) * a.states);
    if (a.frames == 0 || (p.zeroInfinity && loss == kInfinity))
      continue;
    double *beta = rows + a.frames * a.states, share = a.share(p);
    for (int64_t t = a.frames - 1; t >= 0; --t) {
      double *row = beta + t % 2 * a.states;
      a.backward(t, beta + (t + 1) % 2 * a.states, row);
      for (int64_t s = 0; s < a.states; ++s)
        grad[t * p.classes + a.label(s)] -=
            static_cast<float>(expOf(rows[t * a.states + s] + row[s] + loss) * share);
    }
  }
}

} // namespace sluice::SLUICE_LEVEL
