// Gathers and scatters. Indices are data: each is checked before it is used.

#include "kernels/MoveParams.h"
#include "kernels/cpu/ElementSize.h"
#include "kernels/cpu/Half.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

struct Indices {
  const void *data;
  int64_t bytes, size;

  /// The i-th index counted from the start, or -1 when it is out of range.
  int64_t operator[](int64_t i) const {
    int64_t v = bytes == 4 ? static_cast<const int32_t *>(data)[i]
                           : static_cast<const int64_t *>(data)[i];
    if (v < 0)
      v += size;
    return v >= 0 && v < size ? v : -1;
  }
};

/// Offset of an outer index within dims [0, last) other than `axis`, by `strides`.
SLUICE_INLINE int64_t offsetOf(int64_t index, int64_t last, int64_t axis,
                               const int64_t *dims, const int64_t *strides) {
  int64_t offset = 0;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (d != axis)
      offset += index % dims[d] * strides[d];
    index /= dims[d];
  }
  return offset;
}

template <typename T>
void gatherElementLines(const GatherElementsParams &p, const T *x, const Indices &indices,
                        T *y, int64_t begin, int64_t end) {
  constexpr int64_t kLast = kMaxRank - 1;
  int64_t width = p.dims[kLast], lines = 1;
  for (int64_t d = 0; d < kLast; ++d)
    lines *= p.dims[d];
  if (width == 0)
    return;
  int64_t step = p.axis == kLast ? 0 : p.xStride[kLast];
  for (int64_t line = begin * p.unitRows; line < least(end * p.unitRows, lines); ++line) {
    const T *from = x + offsetOf(line, kLast, p.axis, p.dims, p.xStride);
    for (int64_t j = 0; j < width; ++j) {
      int64_t i = indices[line * width + j];
      y[line * width + j] = i < 0 ? T(0) : from[j * step + i * p.xStride[p.axis]];
    }
  }
}

/// Strides of a contiguous shape.
SLUICE_INLINE void contiguous(const int64_t *dims, int64_t *strides) {
  int64_t size = 1;
  for (int64_t d = kMaxRank - 1; d >= 0; --d) {
    strides[d] = size;
    size *= dims[d];
  }
}

struct Replace {
  template <typename T> T operator()(T, T update) const { return update; }
};
struct Add {
  float operator()(float y, float update) const { return y + update; }
};
struct Multiply {
  float operator()(float y, float update) const { return y * update; }
};
/// NaN is kept.
struct Larger {
  float operator()(float y, float update) const {
    return y > update || y != y ? y : update;
  }
};
struct Smaller {
  float operator()(float y, float update) const {
    return y < update || y != y ? y : update;
  }
};

template <typename Combine, typename T>
void scatterLines(const ScatterElementsParams &p, const Indices &indices,
                  const T *updates, T *y, int64_t begin, int64_t end) {
  int64_t dims[kMaxRank], strides[kMaxRank];
  if (p.dims[p.axis] == 0)
    return;
  contiguous(p.dims, strides);
  for (int64_t d = 0; d < kMaxRank; ++d)
    dims[d] = d == p.axis ? 1 : p.dims[d];
  for (int64_t line = begin; line < end; ++line) {
    int64_t from = offsetOf(line, kMaxRank, p.axis, dims, strides);
    int64_t to = offsetOf(line, kMaxRank, p.axis, dims, p.yStride);
    for (int64_t k = 0; k < p.dims[p.axis]; ++k, from += strides[p.axis]) {
      int64_t i = indices[from];
      if (i < 0)
        continue;
      T &target = y[to + i * p.yStride[p.axis]];
      target = Combine{}(target, updates[from]);
    }
  }
}

} // namespace

void gather(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
            int64_t) {
  auto p = readParams<GatherParams>(params);
  Indices indices{buffers[1], p.indexBytes, p.axis};
  int64_t rowBytes = p.inner * p.elementBytes,
          last = least(end * p.unitRows, p.outer * p.count);
  auto *x = static_cast<const uint8_t *>(buffers[0]);
  auto *y = static_cast<uint8_t *>(buffers[2]);
  if (rowBytes == 0)
    return;
  for (int64_t row = begin * p.unitRows; row < last; ++row) {
    int64_t i = indices[row % p.count];
    if (i < 0)
      std::memset(y + row * rowBytes, 0, rowBytes);
    else
      std::memcpy(y + row * rowBytes, x + (row / p.count * p.axis + i) * rowBytes,
                  rowBytes);
  }
}

void gatherElements(void *const *buffers, const int64_t *params, int64_t begin,
                    int64_t end, int64_t) {
  auto p = readParams<GatherElementsParams>(params);
  Indices indices{buffers[1], p.indexBytes, p.axisSize};
  bySize(p.elementBytes, [&]<typename T>(T) {
    gatherElementLines(p, static_cast<const T *>(buffers[0]), indices,
                       static_cast<T *>(buffers[2]), begin, end);
  });
}

template <typename S>
static void addRows(const ScatterAddParams &p, void *const *buffers, int64_t begin,
                    int64_t end) {
  Indices indices{buffers[0], p.indexBytes, p.axis};
  bool byRows = p.unitRows > 0;
  int64_t unitCols = byRows ? most(1, p.inner) : p.unitCols;
  int64_t unitRows = byRows ? p.unitRows : p.axis;
  int64_t blocks = ceilDiv(byRows ? p.axis : p.inner, byRows ? unitRows : unitCols);
  for (int64_t u = begin; u < end; ++u) {
    int64_t outer = u / blocks, block = u % blocks;
    int64_t col = byRows ? 0 : block * unitCols, first = byRows ? block * unitRows : 0;
    int64_t cols = least(unitCols, p.inner - col), last = least(first + unitRows, p.axis);
    auto *from = static_cast<const typename S::Element *>(buffers[1]) +
                 outer * p.count * p.inner + col;
    auto *to = static_cast<float *>(buffers[2]) + outer * p.axis * p.inner + col;
    if (!p.accumulate && cols == p.inner)
      std::memset(to + first * cols, 0, (last - first) * cols * sizeof(float));
    else if (!p.accumulate)
      for (int64_t i = first; i < last; ++i)
        std::memset(to + i * p.inner, 0, cols * sizeof(float));
    for (int64_t k = 0; k < p.count; ++k, from += p.inner) {
      int64_t i = indices[k];
      if (i < first || i >= last)
        continue;
      float *__restrict row = to + i * p.inner;
      const typename S::Element *__restrict update = from;
      for (int64_t j = 0; j < cols; ++j)
        row[j] += S::load1(update + j);
    }
  }
}

void scatterAdd(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t) {
  auto p = readParams<ScatterAddParams>(params);
  if (p.axis == 0)
    return;
  byFormat(p.updatesType, [&]<typename S>(S) { addRows<S>(p, buffers, begin, end); });
}

void scatterElements(void *const *buffers, const int64_t *params, int64_t begin,
                     int64_t end, int64_t) {
  auto p = readParams<ScatterElementsParams>(params);
  Indices indices{buffers[0], p.indexBytes, p.axisSize};
  bySize(p.elementBytes, [&]<typename T>(T) {
    scatterLines<Replace>(p, indices, static_cast<const T *>(buffers[1]),
                          static_cast<T *>(buffers[2]), begin, end);
  });
}

template <typename Combine>
static void scatterFloats(void *const *buffers, const int64_t *params, int64_t begin,
                          int64_t end) {
  auto p = readParams<ScatterElementsParams>(params);
  Indices indices{buffers[0], p.indexBytes, p.axisSize};
  scatterLines<Combine>(p, indices, static_cast<const float *>(buffers[1]),
                        static_cast<float *>(buffers[2]), begin, end);
}
void scatterElementsAdd(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  scatterFloats<Add>(buffers, params, begin, end);
}
void scatterElementsMul(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  scatterFloats<Multiply>(buffers, params, begin, end);
}
void scatterElementsMax(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  scatterFloats<Larger>(buffers, params, begin, end);
}
void scatterElementsMin(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  scatterFloats<Smaller>(buffers, params, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
