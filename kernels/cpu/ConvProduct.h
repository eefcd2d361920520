#pragma once
// The product behind a convolution and its gradient in x, for one group of channels and
// one class of positions: a box of results at a time, whose sums stay in the workspace
// until they are complete.
//
// For 256 rows (channel, tap) of B at a time, weights are packed, and planes of the
// channels they touch are laid out (ConvPlanes.h); panels of 32 columns, gathered from
// them by plain copies, meet all rows of A.

#include "kernels/cpu/ConvPanels.h"

namespace sluice::SLUICE_LEVEL {

/// The parts of a worker's memory.
struct ConvWorkspace {
  float *sums, *weights, *panel, *planes;
  ConvRoom room;

  ConvWorkspace(const ConvRoom &room, void *memory)
      : sums(static_cast<float *>(memory)), weights(sums + room.sums),
        panel(weights + room.weights), planes(panel + room.panel), room(room) {}
};

/// Rows [first, last) of a group's results: which channels of k they sum over, and where
/// results go.
struct ConvPart {
  int64_t first, last;
  int64_t channels; ///< summed over
  int64_t images;
  Source source;
  WeightRows weights;
  Result result; ///< of row `first` and the first image
  int64_t resultPlane, resultImage;
};

template <typename Form> class ImplicitProduct {
public:
  ImplicitProduct(Form &form, const Gather &gather, const int64_t (&kernel)[3],
                  const ConvPart &part, const ConvWorkspace &memory)
      : form(form), g(gather), kernel(kernel), part(part), memory(memory) {
    for (Axis &a : g.axis)
      a = withoutIdleTaps(a);
    taps = g.taps();
    k = part.channels * taps;
  }

  /// Blocks of at most 288 rows.
  void run() {
    for (row = part.first; row < part.last; row += rows) {
      rows = least(gemm::kBlockRows, part.last - row);
      runRows();
    }
  }

private:
  using Element = typename Form::Element;

  void runRows() {
    Box box = boxThatFits();
    wholeWeights = Form::weightFloats(rows, k) <= memory.room.weights;
    bool isFirst = true;
    const Axis *a = g.axis;
    const int64_t size[3] = {box.count[0], box.count[1], box.count[2]};
    const int64_t images = box.images;
    for (box.image = 0; box.image < part.images; box.image += images)
      for (box.first[0] = 0; box.first[0] < a[0].grid; box.first[0] += size[0])
        for (box.first[1] = 0; box.first[1] < a[1].grid; box.first[1] += size[1])
          for (box.first[2] = 0; box.first[2] < a[2].grid; box.first[2] += size[2]) {
            box.images = least(images, part.images - box.image);
            for (int d = 0; d < 3; ++d)
              box.count[d] = least(size[d], a[d].grid - box.first[d]);
            multiply(box, isFirst);
            write(box);
            isFirst = false;
          }
  }

  int64_t channelsPerBlock() const {
    return least(part.channels, channelsOfRows(least(k, gemm::kBlockK), taps));
  }
  bool planesFit(const Box &box) const {
    return planeElements(g, box, channelsPerBlock()) + kTileCols <=
           static_cast<double>(memory.room.planes);
  }
  bool sumsFit(const Box &box) const {
    double columns = static_cast<double>(box.images);
    for (int64_t count : box.count)
      columns *= static_cast<double>(count);
    return static_cast<double>(rows) * __builtin_ceil(columns / kTileCols) * kTileCols <=
           static_cast<double>(memory.room.sums);
  }

  /// Even parts of the images, then of the axes, until it fits.
  template <typename Fits> Box partThat(Fits fits) const {
    Box box{0, part.images, {0, 0, 0}, {}, part.images > g.axis[2].grid};
    for (int d = 0; d < 3; ++d)
      box.count[d] = g.axis[d].grid;
    auto cut = [&](int64_t whole, int64_t &size) {
      for (int64_t parts = 2; size > 1 && !fits(box); parts += 1 + parts / 8)
        size = ceilDiv(whole, parts);
    };
    cut(part.images, box.images);
    for (int d = 0; d < 3; ++d)
      cut(g.axis[d].grid, box.count[d]);
    return box;
  }

  /// Whose sums fit, and planes too, unless that leaves less than a panel.
  Box boxThatFits() const {
    auto sums = [&](const Box &box) { return sumsFit(box); };
    if (k == 0)
      return partThat(sums);
    Box box = partThat([&](const Box &b) { return sumsFit(b) && planesFit(b); });
    bool isPanel = box.columns() >= kTileCols || box.columns() == columnsOfAll();
    return isPanel && planesFit(box) ? box : partThat(sums);
  }
  int64_t columnsOfAll() const { return part.images * g.gridSize(); }

  int64_t rowStride(const Box &box) const {
    return ceilDiv(box.columns(), kTileCols) * kTileCols;
  }

  void multiply(const Box &box, bool isFirst) {
    int64_t columns = box.columns(), stride = rowStride(box);
    if (k == 0)
      zeroFloats(memory.sums, rows * stride);
    if (columns == 0 || k == 0)
      return;
    bool direct = !planesFit(box);
    Planes planes = direct ? Planes{} : planesOf(g, box);
    for (int64_t k0 = 0; k0 < k; k0 += gemm::kBlockK) {
      int64_t kc = least(gemm::kBlockK, k - k0), channel = k0 / taps;
      const float *weights = packedWeights(k0, kc, isFirst);
      auto *elements = reinterpret_cast<Element *>(memory.planes);
      int64_t offsets[gemm::kBlockK];
      if (!direct) {
        int64_t channels = (k0 + kc - 1) / taps - channel + 1;
        Form::fill(g, planes, box, part.source, channel, channels, elements);
        forEachTap(k0, kc, [&](int64_t i, int64_t c, int64_t t0, int64_t t1, int64_t t2) {
          offsets[i] =
              (c - channel) * planes.channelStride + planes.offsetOfTap(t0, t1, t2);
        });
      }
      for (int64_t j = 0; j < columns; j += kTileCols) {
        int64_t width = least(kTileCols, columns - j);
        if (direct)
          gatherOneByOne(box, k0, kc, j, width);
        else
          gatherPanel(planes, box, elements, offsets, kc, j, width);
        form.multiply({rows, kc, weights, memory.panel, memory.sums + j, stride, k0 > 0});
      }
      form.finish();
    }
  }

  void gatherPanel(const Planes &planes, const Box &box, const Element *elements,
                   const int64_t *offsets, int64_t kc, int64_t j, int64_t width) const {
    ColumnRun stretches[kTileCols];
    int64_t count = cutStretches(planes, box, j, width, stretches);
    gatherRows<Form>(elements, offsets, kc, stretches, count, memory.panel);
    Form::endPanel(kc, memory.panel);
    if (width < kTileCols) // idle columns of a tile should not be slow denormals
      for (int64_t s = 0; s < Form::steps(kc); ++s)
        zeroFloats(memory.panel + s * kTileCols + width, kTileCols - width);
  }

  /// Of planes too large for the workspace (kernels that span very far).
  void gatherOneByOne(const Box &box, int64_t k0, int64_t kc, int64_t j,
                      int64_t width) const {
    zeroFloats(memory.panel, Form::steps(kc) * kTileCols);
    const Axis *a = g.axis;
    for (int64_t column = 0; column < width; ++column) {
      int64_t at = j + column, image = box.imagesInside ? at % box.images : 0;
      if (box.imagesInside)
        at /= box.images;
      int64_t i[3] = {0, 0, at % box.count[2]};
      i[1] = at / box.count[2] % box.count[1];
      at = at / box.count[2] / box.count[1];
      i[0] = box.imagesInside ? at : at % box.count[0];
      if (!box.imagesInside)
        image = at / box.count[0];
      image += box.image;
      forEachTap(k0, kc, [&](int64_t n, int64_t c, int64_t t0, int64_t t1, int64_t t2) {
        const int64_t tap[3] = {t0, t1, t2};
        int64_t element = c * part.source.channel + image * part.source.image, place = 0;
        for (int d = 0; d < 3; ++d) {
          int64_t s =
              a[d].first + (box.first[d] + i[d]) * a[d].step + tap[d] * a[d].tapStep;
          if (s < 0 || s >= a[d].source)
            return;
          place = place * a[d].source + s;
        }
        Form::put(part.source.data.at(element + place), n, memory.panel + column);
      });
    }
  }

  /// The block of weights of rows [k0, k0 + kc) of B, packed anew unless all fit.
  const float *packedWeights(int64_t k0, int64_t kc, bool isFirst) const {
    float *to = memory.weights + (wholeWeights ? Form::weightFloats(rows, k0) : 0);
    if (wholeWeights && !isFirst)
      return to;
    int64_t at[gemm::kBlockK];
    const Axis *a = g.axis;
    auto place = [&](int d, int64_t tap) {
      return a[d].kernelFirst + tap * a[d].kernelStep;
    };
    forEachTap(k0, kc, [&](int64_t i, int64_t c, int64_t t0, int64_t t1, int64_t t2) {
      at[i] = c * part.weights.channel +
              (place(0, t0) * kernel[1] + place(1, t1)) * kernel[2] + place(2, t2);
    });
    Form::packA(part.weights, row, at, rows, kc, to);
    return to;
  }

  /// Calls body(i, channel, taps) for rows k0 + i of B.
  template <typename Body> void forEachTap(int64_t k0, int64_t kc, Body body) const {
    const Axis *a = g.axis;
    int64_t c = k0 / taps, t = k0 % taps;
    int64_t t2 = t % a[2].taps, t1 = t / a[2].taps % a[1].taps,
            t0 = t / a[2].taps / a[1].taps;
    for (int64_t i = 0; i < kc; ++i) {
      body(i, c, t0, t1, t2);
      if (++t2 < a[2].taps)
        continue;
      t2 = 0;
      if (++t1 < a[1].taps)
        continue;
      t1 = 0;
      if (++t0 == a[0].taps)
        t0 = 0, ++c;
    }
  }

  /// Complete sums into the result.
  void write(const Box &box) const {
    int64_t stride = rowStride(box);
    byFormat(part.result.type, [&]<typename T>(T) {
      for (int64_t r = 0; r < rows; ++r) {
        auto *plane = part.result.template as<T>() +
                      (row - part.first + r) * part.resultPlane +
                      box.image * part.resultImage;
        for (int64_t i = 0; i < box.images; ++i)
          writePlane<T>(box,
                        memory.sums + r * stride +
                            i * (box.imagesInside ? 1 : box.positions()),
                        plane + i * part.resultImage);
      }
    });
  }

  template <typename T>
  void writePlane(const Box &box, const float *from, typename T::Element *plane) const {
    const Axis *a = g.axis;
    int64_t step = box.imagesInside ? box.images : 1;
    bool isRun = step == 1 && a[2].targetStep == 1 && a[1].targetStep == 1 &&
                 a[0].targetStep == 1 && box.count[2] == g.targetSize[2] &&
                 (box.count[0] == 1 || box.count[1] == g.targetSize[1]);
    if (isRun)
      return narrow<T>(from, plane + g.targetOf(box.first[0], box.first[1], 0),
                       box.positions());
    for (int64_t i0 = 0; i0 < box.count[0]; ++i0)
      for (int64_t i1 = 0; i1 < box.count[1]; ++i1, from += box.count[2] * step) {
        auto *to = plane + g.targetOf(box.first[0] + i0, box.first[1] + i1, box.first[2]);
        if (step == 1 && a[2].targetStep == 1)
          narrow<T>(from, to, box.count[2]);
        else
          for (int64_t i2 = 0; i2 < box.count[2]; ++i2)
            T::store1(to + i2 * a[2].targetStep, from[i2 * step]);
      }
  }

  Form &form;
  Gather g;
  const int64_t (&kernel)[3];
  const ConvPart &part;
  const ConvWorkspace &memory;
  int64_t taps, k;
  int64_t row = 0, rows = 0; ///< of the block
  bool wholeWeights = false; ///< those of all of k fit
};

} // namespace sluice::SLUICE_LEVEL
