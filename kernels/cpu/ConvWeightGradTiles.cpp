// Gradient of a convolution in its weights from bf16 by bf16 on tiles. Bits as products
// of level `amx` (GemmParams.h) whose k runs over images and outputs as one sequence.
//
// C has a row for each (channel, kernel position): rows of A are runs of the planes of x
// (ConvPlanes.h), copied 32 rows and 256 outputs at a time and used for all channels of
// the result.

#include "kernels/cpu/ConvPlanes.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/TileBlock.h"
#include "kernels/cpu/WeightGradUnits.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// Outputs of one row that follow one another: the first in the planes, how many, and the
/// first's place in the block.
struct Segment {
  int64_t x, count, at;
};

/// dw transposed, [live column][rows].
class TiledProduct {
public:
  TiledProduct(const Unit<Bf16> &u, TileBlocks &blocks)
      : u(u), blocks(blocks), live(u.gather, u.col, u.cols),
        firstChannel(u.col / u.gather.taps()),
        channels((u.col + u.cols - 1) / u.gather.taps() + 1 - firstChannel),
        width(ceilDiv(u.rows, kTileCols) * kTileCols), sums(u.workspace),
        outputs(sums + u.cols * width),
        inputs(reinterpret_cast<uint16_t *>(outputs + kPairs * width)) {
    for (int d = 0; d < 3; ++d)
      box.count[d] = live.gather.axis[d].grid;
    if (live.count == 0)
      return;
    planes = planesOf(live.gather, box);
    imageSize = planes.channelStride * channels;
    scratch = reinterpret_cast<uint16_t *>(outputs + gemm::kBlockK * width);
    images = scratch + imageSize + kTileCols; // fillPlanes writes that much beyond
  }

  void run() {
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
      packOutputs(q, kc);
      Segment segments[gemm::kBlockK];
      int64_t count = cutSegments(q, kc, segments);
      for (int64_t j = 0; j < live.count; j += kBlock) {
        int64_t rows = least(kBlock, live.count - j);
        copyInputs(shifts + j, rows, segments, count, kc);
        for (int64_t i = 0; i < width; i += kTileCols)
          multiply(j, i, rows, kc, q > 0);
      }
      blocks.finish();
    }
    u.writeTransposed(sums, width, live);
  }

private:
  static constexpr int64_t kPairs = gemm::kBlockK / 2;

  int64_t slots() const { return (gemm::kBlockK - 2 + u.outSize) / u.outSize + 1; }
  int64_t slot(int64_t image) const { return image % slots() * imageSize; }

  void layOut(int64_t image) {
    Source source{
        {u.x + (image * u.g.c + firstChannel) * u.inSize, format::kBf16}, 0, u.inSize};
    fillPlanes<Bf16>(live.gather, planes, box, source, 0, channels, scratch);
    std::memcpy(images + slot(image), scratch, imageSize * sizeof *images);
  }

  int64_t cutSegments(int64_t q, int64_t kc, Segment *segments) const {
    int64_t n = 0, row = u.g.out[2];
    const Side *side = planes.side;
    u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
      for (int64_t last = o + count; o < last;) {
        int64_t run = least(last - o, row - o % row), o1 = o / row % u.g.out[1];
        segments[n++] = {slot(image) + o % row * side[2].stride + o1 * side[1].stride +
                             o / row / u.g.out[1] * side[0].stride,
                         run, at};
        o += run, at += run;
      }
    });
    return n;
  }

  /// inputs[row][256], zeros to the end of the last step.
  void copyInputs(const int64_t *shifts, int64_t rows, const Segment *segments,
                  int64_t count, int64_t kc) {
    int64_t end = ceilDiv(kc, kUnitK) * kUnitK;
    for (int64_t r = 0; r < rows; ++r) {
      uint16_t *to = inputs + r * gemm::kBlockK;
      const uint16_t *from = images + shifts[r];
      for (const Segment *s = segments; s != segments + count; ++s)
        std::memcpy(to + s->at, from + s->x, s->count * sizeof *to);
      std::memset(to + kc, 0, (end - kc) * sizeof *to);
    }
  }

  /// outputs[panel of 32 channels][pair][32][2], zeros to the end of the last step.
  void packOutputs(int64_t q, int64_t kc) {
    int64_t pairs = ceilDiv(kc, 2), end = ceilDiv(kc, kUnitK) * kUnitK / 2;
    for (int64_t i = 0; i < u.rows; i += kTileCols) {
      uint16_t *panel = panelOf(i);
      u.forEachImage(q, kc, [&](int64_t image, int64_t o, int64_t count, int64_t at) {
        Operand from = u.dy.at((image * u.g.m + u.row + i) * u.outSize + o);
        packRun(from.as<Bf16>(), least(kTileCols, u.rows - i), count, at, panel);
      });
      std::memset(panel + pairs * 2 * kTileCols, 0,
                  (end - pairs) * 2 * kTileCols * sizeof *panel);
    }
  }
  void packRun(const uint16_t *from, int64_t cols, int64_t count, int64_t at,
               uint16_t *panel) const {
    uint16_t *to = panel + at / 2 * 2 * kTileCols;
    if (at % 2) { // the run before has ended within this pair
      for (int64_t c = 0; c < cols; ++c)
        to[2 * c + 1] = from[c * u.outSize];
      ++from, --count, to += 2 * kTileCols;
    }
    packPairs({from, u.outSize, 1}, cols, count, ceilDiv(count, 2), to);
  }
  uint16_t *panelOf(int64_t channel) const {
    return reinterpret_cast<uint16_t *>(outputs + channel * kPairs);
  }

  void multiply(int64_t j, int64_t i, int64_t rows, int64_t kc, bool accumulate) {
    int64_t n = ceilDiv(kc, kUnitK);
    const uint16_t *panel = panelOf(i);
    BlockOperands x{inputs, kUnitRows * gemm::kBlockK, panel,
                    panel + (n - 1) * kStepElements, n};
    x.aRow = gemm::kBlockK * sizeof(uint16_t), x.aStep = kUnitK;
    BlockOfC c{{sums + j * width + i, format::kF32}, width, rows, kTileCols};
    Ahead nothing{nullptr, nullptr, 0};
    blocks.multiply(x, accumulate ? &c : nullptr, c, nothing);
  }

  const Unit<Bf16> &u;
  TileBlocks &blocks;
  LiveColumns live;
  int64_t firstChannel, channels, width, imageSize = 0;
  Box box{0, 1, {0, 0, 0}, {1, 1, 1}, false};
  Planes planes{};
  float *sums, *outputs;
  uint16_t *inputs, *scratch = nullptr, *images = nullptr;
};

} // namespace

void convWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t worker) {
  auto p = readParams<ConvWeightGradParams>(params);
  if (!usesPairs(p.xType, p.dyType) || convWeightGradImageFloats(p) < 0)
    return SLUICE_BELOW::convWeightGrad(buffers, params, begin, end, worker);
  alignas(64) float scratch[TileBlocks::kScratchBytes / sizeof(float)];
  TileBlocks blocks(scratch);
  forEachUnit<Bf16>(p, buffers, begin, end, [&](const Unit<Bf16> &u) {
    if (u.isEmpty())
      return u.writeZeros();
    TiledProduct(u, blocks).run();
  });
}

} // namespace sluice::SLUICE_LEVEL
