// Gradient of a convolution in its weights from bf16 by bf16 by dot products of pairs of
// outputs that follow one another in a row. Bits as the level below (GemmDots.cpp says
// why).
//
// Rows of x are read in place, one broadcast word of two elements a step, at any element.
// The earlier of two has to be in the upper half, so planes are stored backwards; with a
// stride, what neighbouring outputs read lies side by side (ConvPlanes.h). The last
// output of a row of an odd length is a step by itself.

#include "kernels/cpu/ConvPlanes.h"
#include "kernels/cpu/DotTile.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/PackDots.h"
#include "kernels/cpu/WeightGradUnits.h"

namespace sluice::SLUICE_LEVEL {
namespace {

constexpr int kDotRows = 6;

/// Outputs of one row that follow one another: elements back from the end of the planes
/// to that of the first one, and how many.
struct Segment {
  int64_t x, count;
};

SLUICE_INLINE Vec splatWord(const uint16_t *p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return reinterpret_cast<Vec>(_mm512_set1_epi32(static_cast<int>(word)));
}

/// c[Rows][32] = or += sum over segments of x[shift of row + i] * dy[i][column]; words of
/// dy as packDots leaves them, segment by segment.
template <int Rows>
void dotGradTile(const uint16_t *end, const int64_t *shifts, const Segment *segments,
                 int64_t count, const float *dy, float *c, int64_t cRow,
                 bool accumulate) {
  RegisterSums<Rows> sums;
  for (const Segment *s = segments; s != segments + count; ++s) {
    const uint16_t *row[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
      row[r] = end - s->x - shifts[r];
    int64_t at = 0;
    for (int64_t pair = s->count / 2; pair > 0; --pair, dy += kTileCols) {
      at -= 2;
      sums.step(
          dy,
          [&](int r) __attribute__((always_inline)) { return splatWord(row[r] + at); },
          dot3);
    }
    if (s->count % 2) {
      sums.step(
          dy,
          [&](int r) __attribute__((always_inline)) {
            return splat(Bf16::load1(row[r] + at - 1));
          },
          fma3);
      dy += kTileCols;
    }
  }
  sums.writeTo(c, cRow, accumulate);
}

using DotGradTile = void (*)(const uint16_t *, const int64_t *, const Segment *, int64_t,
                             const float *, float *, int64_t, bool);
constexpr DotGradTile kDotGradTiles[] = {nullptr,        dotGradTile<1>, dotGradTile<2>,
                                         dotGradTile<3>, dotGradTile<4>, dotGradTile<5>,
                                         dotGradTile<6>};

/// to[i] = from[n - 1 - i].
void reverseElements(const uint16_t *from, int64_t n, uint16_t *to) {
  alignas(64) static constexpr uint16_t kBackwards[32] = {
      31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
      15, 14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  3,  2,  1,  0};
  __m512i order = _mm512_load_si512(kBackwards);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    _mm512_storeu_si512(
        to + i, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(from + n - 32 - i)));
  for (; i < n; ++i)
    to[i] = from[n - 1 - i];
}

/// dw transposed, [live column][rows].
class PairedProduct {
public:
  explicit PairedProduct(const Unit<Bf16> &u)
      : u(u), live(u.gather, u.col, u.cols), firstChannel(u.col / u.gather.taps()),
        channels((u.col + u.cols - 1) / u.gather.taps() + 1 - firstChannel),
        width(ceilDiv(u.rows, kTileCols) * kTileCols), sums(u.workspace),
        outputs(sums + u.cols * width) {
    for (int d = 0; d < 3; ++d)
      box.count[d] = live.gather.axis[d].grid;
    if (live.count == 0)
      return;
    planes = planesOf(live.gather, box);
    imageSize = planes.channelStride * channels;
    scratch = reinterpret_cast<uint16_t *>(outputs + gemm::kBlockK * width);
    images = scratch + imageSize + kTileCols; // fillPlanes writes that much beyond
  }

  void run() const {
    if (live.count == 0)
      return u.writeZeros();
    int64_t shifts[LiveColumns::kMost];
    const Axis *a = live.gather.axis;
    for (int64_t j = 0; j < live.count; ++j) {
      int64_t t = live.tap[j];
      shifts[j] = live.channel[j] * planes.channelStride +
                  planes.offsetOfTap(t / a[2].taps / a[1].taps, t / a[2].taps % a[1].taps,
                                     t % a[2].taps);
    }
    for (int64_t q = 0, ready = 0; q < u.positions(); q += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, u.positions() - q);
      for (int64_t last = (q + kc - 1) / u.outSize; ready <= last; ++ready)
        layOut(ready);
      Segment segments[gemm::kBlockK];
      int64_t count = cutSegments(q, kc, segments);
      for (int64_t i = 0; i < width; i += kTileCols)
        for (int64_t j = 0; j < live.count; j += kDotRows)
          kDotGradTiles[least(kDotRows, live.count - j)](
              end(), shifts + j, segments, count, outputs + i * gemm::kBlockK,
              sums + j * width + i, width, q > 0);
    }
    u.writeTransposed(sums, width, live);
  }

private:
  int64_t slots() const { return (gemm::kBlockK - 2 + u.outSize) / u.outSize + 1; }
  const uint16_t *end() const { return images + slots() * imageSize; }
  /// Elements from the end of all slots back to that of an image.
  int64_t slot(int64_t image) const { return image % slots() * imageSize; }

  void layOut(int64_t image) const {
    Source source{
        {u.x + (image * u.g.c + firstChannel) * u.inSize, format::kBf16}, 0, u.inSize};
    fillPlanes<Bf16>(live.gather, planes, box, source, 0, channels, scratch);
    reverseElements(scratch, imageSize, images + (slots() - 1) * imageSize - slot(image));
  }

  /// Segments of positions [q, q + kc); their rows of dy by words, [panel of 32
  /// channels][word][32].
  int64_t cutSegments(int64_t q, int64_t kc, Segment *segments) const {
    int64_t n = 0, words = 0, row = u.g.out[2];
    const Side *side = planes.side;
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t) {
      Operand from = u.dy.at((image * u.g.m + u.row) * u.outSize);
      int64_t packed = o; // outputs of this image
      for (int64_t last = o + count; o < last;) {
        int64_t run = least(last - o, row - o % row), o1 = o / row % u.g.out[1];
        segments[n++] = {slot(image) + o % row * side[2].stride + o1 * side[1].stride +
                             o / row / u.g.out[1] * side[0].stride,
                         run};
        o += run;
        // Rows of even lengths follow one another as if they were one.
        if (run % 2 == 0 && o < last)
          continue;
        packOutputs(from.at(packed), o - packed, words);
        words += pairsOf(o - packed);
        packed = o;
      }
    });
    return n;
  }

  void packOutputs(Operand from, int64_t count, int64_t word) const {
    for (int64_t i = 0; i < u.rows; i += kTileCols)
      packDots<kTileCols>(from.as<Bf16>() + i * u.outSize, u.outSize, 1,
                          least(kTileCols, u.rows - i), count,
                          outputs + i * gemm::kBlockK + word * kTileCols);
  }

  const Unit<Bf16> &u;
  LiveColumns live;
  int64_t firstChannel, channels, width, imageSize = 0;
  Box box{0, 1, {0, 0, 0}, {1, 1, 1}, false};
  Planes planes{};
  float *sums, *outputs;
  uint16_t *scratch = nullptr, *images = nullptr;
};

} // namespace

void convWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t worker) {
  auto p = readParams<ConvWeightGradParams>(params);
  if (!usesPairs(p.xType, p.dyType) || convWeightGradImageFloats(p) < 0)
    return SLUICE_BELOW::convWeightGrad(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  forEachUnit<Bf16>(p, buffers, begin, end, [](const Unit<Bf16> &u) {
    if (u.isEmpty())
      return u.writeZeros();
    PairedProduct(u).run();
  });
}

} // namespace sluice::SLUICE_LEVEL
