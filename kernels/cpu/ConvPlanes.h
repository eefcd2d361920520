#pragma once
// What the columns of an implicit product read: planes of a few channels with their pads,
// laid out so that for every tap the sources of neighbouring columns are neighbours.
//
// Along an axis with a stride, positions a stride apart lie side by side, one run of them
// for each remainder that a tap needs. Where images are more than the results of a row
// (planes of a few elements), they are the innermost axis. A row (channel, tap) of B is
// then a fixed offset, a column another.

#include "kernels/cpu/Im2col.h"

namespace sluice::SLUICE_LEVEL {

/// A box of results over some images. Columns follow one another in the order image,
/// positions, or positions, image (`imagesInside`).
struct Box {
  int64_t image, images;
  int64_t first[3], count[3];
  bool imagesInside;

  int64_t positions() const { return count[0] * count[1] * count[2]; }
  int64_t columns() const { return images * positions(); }
};

/// How planes hold one axis: runs of `size` positions a step apart, `slots` of them.
struct Side {
  int64_t slots, size;
  int64_t slotStride, stride; ///< in elements
  int64_t lowest;             ///< source coordinate of the first position
  int64_t step, tapStep;      ///< between positions of a run, between runs
  int64_t period, shift;      ///< every `period` taps the same run, `shift` positions on
  int64_t taps;
  bool reversed; ///< taps go down

  int64_t offsetOfTap(int64_t tap) const {
    int64_t t = reversed ? taps - 1 - tap : tap;
    if (period == 1) // divisions would be most of the time
      return t * shift * stride;
    return t % period * slotStride + t / period * shift * stride;
  }
};

struct Planes {
  Side side[3];
  int64_t imageStride, channelStride;

  int64_t offsetOfTap(int64_t t0, int64_t t1, int64_t t2) const {
    return side[0].offsetOfTap(t0) + side[1].offsetOfTap(t1) + side[2].offsetOfTap(t2);
  }
};

/// Taps must be at least 1 along every axis.
static inline Planes planesOf(const Gather &g, const Box &box) {
  Planes p;
  int64_t stride = box.imagesInside ? box.images : 1;
  for (int d = 2; d >= 0; --d) {
    const Axis &a = g.axis[d];
    Side &s = p.side[d];
    s.reversed = a.tapStep < 0;
    s.tapStep = s.reversed ? -a.tapStep : a.tapStep;
    s.taps = a.taps, s.step = a.step;
    s.lowest =
        a.first + box.first[d] * a.step + (s.reversed ? (a.taps - 1) * a.tapStep : 0);
    int64_t x = a.step, y = s.tapStep;
    while (y) {
      int64_t t = x % y;
      x = y, y = t;
    }
    s.period = a.step / x;
    s.shift = s.tapStep / x;
    s.slots = least(a.taps, s.period);
    s.size = box.count[d] + (a.taps - 1) / s.period * s.shift;
    s.stride = stride;
    s.slotStride = stride * s.size;
    stride = s.slotStride * s.slots;
  }
  p.imageStride = box.imagesInside ? 1 : stride;
  p.channelStride = box.imagesInside ? stride : stride * box.images;
  return p;
}

/// Channels that so many rows (channel, tap) may touch.
SLUICE_INLINE int64_t channelsOfRows(int64_t rows, int64_t taps) {
  return (rows - 2 + taps) / taps + 1;
}

/// Elements of planes of a box, as a floating-point number: it may be beyond an integer.
static inline double planeElements(const Gather &g, const Box &box, int64_t channels) {
  double size = static_cast<double>(channels) * static_cast<double>(box.images);
  for (int d = 0; d < 3; ++d) {
    const Axis &a = g.axis[d];
    int64_t step = a.tapStep < 0 ? -a.tapStep : a.tapStep;
    double span = static_cast<double>(a.taps - 1) * static_cast<double>(step);
    double runs = a.step == 1 ? 1 : static_cast<double>(least(a.taps, a.step));
    size *=
        runs * (static_cast<double>(box.count[d]) + span / static_cast<double>(a.step));
  }
  return size;
}

/// Where the planes come from: channels of a group, of the first image.
struct Source {
  Operand data;
  int64_t image, channel; ///< elements between them
};

SLUICE_INLINE void zeroElements(uint16_t *to, int64_t n) {
  std::memset(to, 0, n * sizeof *to);
}
SLUICE_INLINE void zeroElements(float *to, int64_t n) { zeroFloats(to, n); }

/// Elements as planes hold them: f32, or bf16 as it is.
template <typename S>
SLUICE_INLINE void copyElements(const typename S::Element *from, float *to, int64_t n) {
  widen<S>(from, to, n);
}
template <typename S>
SLUICE_INLINE void copyElements(const uint16_t *from, uint16_t *to, int64_t n) {
  std::memcpy(to, from, n * sizeof *to);
}
/// A vector of which lanes [low, high) are elements and the others zeros.
template <typename S>
SLUICE_INLINE void copyLanes(const typename S::Element *from, int64_t low, int64_t high,
                             float *to) {
  store(to, loadLanes<S>(from, low, high));
}
#if defined(__AVX512F__)
template <typename S>
SLUICE_INLINE void copyLanes(const uint16_t *from, int64_t low, int64_t high,
                             uint16_t *to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to),
                      _mm256_maskz_loadu_epi16(lanes(low, high), from));
}
#else
template <typename S>
SLUICE_INLINE void copyLanes(const uint16_t *from, int64_t low, int64_t high,
                             uint16_t *to) {
  for (int64_t i = 0; i < kLanes; ++i)
    to[i] = i >= low && i < high ? from[i] : 0;
}
#endif
template <typename S>
SLUICE_INLINE void copyElement(const typename S::Element *from, float *to) {
  *to = S::load1(from);
}
template <typename S> SLUICE_INLINE void copyElement(const uint16_t *from, uint16_t *to) {
  *to = *from;
}

/// Every second one of 16 elements, eight of them.
template <typename S>
SLUICE_INLINE void copySecond(const typename S::Element *from, float *to) {
  __m256 even = _mm256_shuffle_ps(S::load8(from), S::load8(from + 8), 0x88);
  _mm256_storeu_ps(to,
                   _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xD8)));
}
template <typename S> SLUICE_INLINE void copySecond(const uint16_t *from, uint16_t *to) {
  auto even = [](const uint16_t *p) {
    return _mm_and_si128(load16Bytes(p), _mm_set1_epi32(0xffff));
  };
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to),
                   _mm_packus_epi32(even(from), even(from + 8)));
}

/// `n` elements a step apart.
template <typename S, typename E>
SLUICE_INLINE void copyApart(const typename S::Element *from, int64_t step, E *to,
                             int64_t n) {
  int64_t i = 0;
  if (step == 2) // eight read one element beyond their last
    for (; i + 8 < n; i += 8)
      copySecond<S>(from + 2 * i, to + i);
  for (; i < n; ++i)
    copyElement<S>(from + i * step, to + i);
}

/// The positions of a run that lie inside the source.
SLUICE_INLINE void insideOfRun(const Side &s, int64_t length, int64_t slot, int64_t &low,
                               int64_t &high) {
  int64_t start = s.lowest + slot * s.tapStep, left = length - start;
  low = start >= 0 ? 0 : ceilDiv(-start, s.step);
  high = left <= 0 ? 0 : least(s.size, ceilDiv(left, s.step));
  low = least(low, high);
}

/// A run from `row`, where its position 0 would be; positions [low, high) are inside. May
/// write zeros up to a vector beyond its end.
template <typename S, typename E>
SLUICE_INLINE void fillRun(const typename S::Element *row, int64_t step, int64_t low,
                           int64_t high, int64_t size, E *to) {
  if (step == 1 && size <= kLanes)
    return copyLanes<S>(row, low, high, to);
  zeroElements(to, low);
  if (step == 1 && low < high)
    copyElements<S>(row + low, to + low, high - low);
  else
    copyApart<S>(row + low * step, step, to + low, high - low);
  zeroElements(to + high, size - high);
}

/// Calls body(source coordinate, elements into the planes) along an axis.
template <typename Body> SLUICE_INLINE void forEachPlace(const Side &s, Body body) {
  for (int64_t q = 0; q < s.slots; ++q)
    for (int64_t i = 0; i < s.size; ++i)
      body(s.lowest + q * s.tapStep + i * s.step, q * s.slotStride + i * s.stride);
}

SLUICE_INLINE bool isInside(int64_t at, int64_t size) { return at >= 0 && at < size; }

/// Planes of one channel of one image, row by row, in the order of addresses.
template <typename S, typename E>
static void fillPlane(const Gather &g, const Planes &p, const typename S::Element *plane,
                      E *to) {
  const int64_t size1 = g.axis[1].source, size2 = g.axis[2].source;
  const Side &rows = p.side[1], &row = p.side[2];
  bool wholeRows = row.slots == 1 && row.step == 1 && row.lowest == 0 &&
                   row.size == size2 && rows.slots == 1 && rows.step == 1;
  int64_t low, high;
  insideOfRun(wholeRows ? rows : row, wholeRows ? size1 : size2, 0, low, high);
  forEachPlace(p.side[0], [&](int64_t s0, int64_t at0) {
    bool inside = isInside(s0, g.axis[0].source);
    if (wholeRows) {
      auto *from = plane + (inside ? (s0 * size1 + rows.lowest) * size2 : 0);
      int64_t end = inside ? high : 0, begin = least(low, end);
      return fillRun<S>(from, 1, begin * size2, end * size2, rows.size * size2, to + at0);
    }
    forEachPlace(rows, [&](int64_t s1, int64_t at1) {
      bool is = inside && isInside(s1, size1);
      auto *from = plane + (is ? (s0 * size1 + s1) * size2 : 0);
      for (int64_t q = 0; q < row.slots; ++q) {
        if (row.slots > 1)
          insideOfRun(row, size2, q, low, high);
        fillRun<S>(from + row.lowest + q * row.tapStep, row.step, is ? low : 0,
                   is ? high : 0, row.size, to + at0 + at1 + q * row.slotStride);
      }
    });
  });
}

/// Positions [low, high) of a row, `image` elements apart in the source, images side by
/// side in the planes.
template <typename S>
static void transposeRun(const typename S::Element *row, int64_t image, int64_t images,
                         int64_t low, int64_t high, int64_t stride, float *to) {
  int64_t m = 0;
  for (; m + 4 <= images; m += 4) {
    const typename S::Element *from = row + m * image;
    int64_t i = low;
    for (; i + 4 <= high; i += 4)
      transpose4x4<S>(from + i, image, to + i * stride + m, stride);
    for (; i < high; ++i)
      for (int64_t k = 0; k < 4; ++k)
        to[i * stride + m + k] = S::load1(from + k * image + i);
  }
  for (; m < images; ++m)
    for (int64_t i = low; i < high; ++i)
      to[i * stride + m] = S::load1(row + m * image + i);
}

/// The same with images as the innermost axis, of all channels, where neighbouring
/// positions are neighbours in the source.
template <typename S>
static void fillTransposedRows(const Gather &g, const Planes &p, const Box &box,
                               const Source &source, const typename S::Element *from,
                               int64_t channels, float *to) {
  const int64_t size1 = g.axis[1].source, size2 = g.axis[2].source;
  const Side &row = p.side[2];
  int64_t low, high;
  insideOfRun(row, size2, 0, low, high);
  for (int64_t c = 0; c < channels; ++c, from += source.channel, to += p.channelStride)
    forEachPlace(p.side[0], [&](int64_t s0, int64_t at0) {
      forEachPlace(p.side[1], [&](int64_t s1, int64_t at1) {
        bool is = isInside(s0, g.axis[0].source) && isInside(s1, size1);
        int64_t begin = is ? low : 0, end = is ? high : 0;
        float *into = to + at0 + at1;
        zeroElements(into, begin * row.stride);
        if (begin < end)
          transposeRun<S>(from + (s0 * size1 + s1) * size2 + row.lowest, source.image,
                          box.images, begin, end, row.stride, into);
        zeroElements(into + end * row.stride, (row.size - end) * row.stride);
      });
    });
}

/// The same, whatever lies between positions.
template <typename S, typename E>
static void fillTransposed(const Gather &g, const Planes &p, const Box &box,
                           const Source &source, const typename S::Element *from,
                           int64_t channels, E *to) {
  if constexpr (sizeof(E) == sizeof(float))
    if (p.side[2].slots == 1 && p.side[2].step == 1)
      return fillTransposedRows<S>(g, p, box, source, from, channels, to);
  const int64_t size1 = g.axis[1].source, size2 = g.axis[2].source;
  forEachPlace(p.side[0], [&](int64_t s0, int64_t at0) {
    forEachPlace(p.side[1], [&](int64_t s1, int64_t at1) {
      forEachPlace(p.side[2], [&](int64_t s2, int64_t at2) {
        bool is =
            isInside(s0, g.axis[0].source) && isInside(s1, size1) && isInside(s2, size2);
        auto *element = from + (is ? (s0 * size1 + s1) * size2 + s2 : 0);
        E *into = to + at0 + at1 + at2;
        for (int64_t c = 0; c < channels; ++c, into += p.channelStride) {
          if (!is) {
            zeroElements(into, box.images);
            continue;
          }
          for (int64_t image = 0; image < box.images; ++image)
            copyElement<S>(element + c * source.channel + image * source.image,
                           into + image);
        }
      });
    });
  });
}

/// Fills the planes of `channels` channels from `channel` on, and a vector beyond.
template <typename S, typename E>
static void fillPlanes(const Gather &g, const Planes &p, const Box &box,
                       const Source &source, int64_t channel, int64_t channels, E *to) {
  auto *from = source.data.as<S>() + box.image * source.image + channel * source.channel;
  if (box.imagesInside)
    fillTransposed<S>(g, p, box, source, from, channels, to);
  else
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t image = 0; image < box.images; ++image)
        fillPlane<S>(g, p, from + image * source.image + c * source.channel,
                     to + image * p.imageStride + c * p.channelStride);
  zeroElements(to + channels * p.channelStride, kTileCols);
}

/// Columns that follow one another in the planes.
struct ColumnRun {
  int64_t at, count, offset;
};

/// Cuts columns [first, first + count) into stretches of at most a vector; returns how
/// many.
static inline int64_t cutStretches(const Planes &p, const Box &box, int64_t first,
                                   int64_t count, ColumnRun *to) {
  // Axes from the innermost.
  const int64_t positions[3] = {box.count[2], box.count[1], box.count[0]};
  const int64_t steps[3] = {p.side[2].stride, p.side[1].stride, p.side[0].stride};
  int64_t sizes[4], strides[4], at[4], n = 0;
  int axis = 0;
  if (box.imagesInside)
    sizes[axis] = box.images, strides[axis++] = p.imageStride;
  for (int d = 0; d < 3; ++d)
    sizes[axis] = positions[d], strides[axis++] = steps[d];
  if (!box.imagesInside)
    sizes[axis] = box.images, strides[axis++] = p.imageStride;
  int64_t rest = first;
  for (int d = 0; d < 4; ++d)
    at[d] = rest % sizes[d], rest /= sizes[d];
  for (int64_t column = 0; column < count;) {
    int64_t length = least(count - column, sizes[0] - at[0]), offset = 0;
    for (int d = 0; d < 4; ++d)
      offset += at[d] * strides[d];
    bool follows = n > 0 && to[n - 1].offset + to[n - 1].count == offset;
    if (follows)
      to[n - 1].count += length;
    else
      to[n++] = {column, length, offset};
    while (to[n - 1].count > kLanes) {
      ColumnRun &last = to[n - 1];
      to[n++] = {last.at + kLanes, last.count - kLanes, last.offset + kLanes};
      last.count = kLanes;
    }
    column += length;
    at[0] += length;
    for (int d = 0; d < 3 && at[d] == sizes[d]; ++d)
      at[d] = 0, ++at[d + 1];
  }
  return n;
}

} // namespace sluice::SLUICE_LEVEL
