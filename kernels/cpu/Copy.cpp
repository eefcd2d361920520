// Strided copies and fills.

#include "kernels/MoveParams.h"
#include "kernels/cpu/ElementSize.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Transpose.h"

namespace sluice::SLUICE_LEVEL {
namespace {

struct Block {
  int64_t rows, cols;
  int64_t inRow, inCol, outRow, outCol; ///< strides in elements
};

SLUICE_INLINE void transpose8x8Of(const uint32_t *in, int64_t inRow, uint32_t *out,
                                  int64_t outRow) {
  transpose8x8(reinterpret_cast<const float *>(in), inRow, reinterpret_cast<float *>(out),
               outRow);
}
SLUICE_INLINE void transpose8x8Of(const uint16_t *in, int64_t inRow, uint16_t *out,
                                  int64_t outRow) {
  transposeHalves8x8(in, inRow, out, outRow);
}

/// in walks down columns while out walks along rows: tiles of 16 x 16 keep both within
/// few lines.
template <typename T> void transposeBlock(const Block &b, const T *in, T *out) {
  constexpr int64_t kTile = 16;
  for (int64_t r = 0; r < b.rows; r += kTile)
    for (int64_t c = 0; c < b.cols; c += kTile) {
      int64_t rows = least(kTile, b.rows - r), cols = least(kTile, b.cols - c);
      const T *from = in + r + c * b.inCol;
      T *to = out + r * b.outRow + c;
      if constexpr (sizeof(T) == 4 || sizeof(T) == 2)
        if (rows == kTile && cols == kTile) {
          for (int64_t i = 0; i < kTile; i += 8)
            for (int64_t j = 0; j < kTile; j += 8)
              transpose8x8Of(from + i + j * b.inCol, b.inCol, to + i * b.outRow + j,
                             b.outRow);
          continue;
        }
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j)
          to[i * b.outRow + j] = from[i + j * b.inCol];
    }
}

template <typename T> void copyBlock(const Block &b, const T *in, T *out) {
  if (b.inRow == 1 && b.outCol == 1 && b.inCol != 1)
    return transposeBlock(b, in, out);
  for (int64_t r = 0; r < b.rows; ++r, in += b.inRow, out += b.outRow) {
    if (b.inCol == 1 && b.outCol == 1)
      std::memcpy(out, in, b.cols * sizeof(T));
    else if (b.inCol == 0 && b.outCol == 1)
      for (int64_t c = 0; c < b.cols; ++c)
        out[c] = in[0];
    else
      for (int64_t c = 0; c < b.cols; ++c)
        out[c * b.outCol] = in[c * b.inCol];
  }
}

template <typename T>
void copyUnits(const CopyParams &p, const T *in, T *out, int64_t begin, int64_t end) {
  constexpr int64_t kRows = kMaxRank - 2, kCols = kMaxRank - 1;
  int64_t rowBlocks = ceilDiv(p.dims[kRows], p.unitRows);
  int64_t colBlocks = ceilDiv(p.dims[kCols], p.unitCols);
  for (int64_t u = begin; u < end; ++u) {
    int64_t col = u % colBlocks * p.unitCols,
            row = u / colBlocks % rowBlocks * p.unitRows;
    int64_t outer = u / colBlocks / rowBlocks;
    int64_t from = p.inOffset + row * p.inStride[kRows] + col * p.inStride[kCols];
    int64_t to = p.outOffset + row * p.outStride[kRows] + col * p.outStride[kCols];
    for (int64_t d = kRows - 1; d >= 0; --d) {
      int64_t i = outer % p.dims[d];
      outer /= p.dims[d];
      from += i * p.inStride[d];
      to += i * p.outStride[d];
    }
    copyBlock<T>({least(p.unitRows, p.dims[kRows] - row),
                  least(p.unitCols, p.dims[kCols] - col), p.inStride[kRows],
                  p.inStride[kCols], p.outStride[kRows], p.outStride[kCols]},
                 in + from, out + to);
  }
}

template <typename T>
void fillUnits(const FillParams &p, T *out, int64_t begin, int64_t end) {
  T value = static_cast<T>(p.bits);
  for (int64_t i = begin * p.unitElements; i < least(end * p.unitElements, p.count); ++i)
    out[i] = value;
}

} // namespace

void copyStrided(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<CopyParams>(params);
  bySize(p.elementBytes, [&]<typename T>(T) {
    copyUnits(p, static_cast<const T *>(buffers[0]), static_cast<T *>(buffers[1]), begin,
              end);
  });
}

void fillElements(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                  int64_t) {
  auto p = readParams<FillParams>(params);
  bySize(p.elementBytes,
         [&]<typename T>(T) { fillUnits(p, static_cast<T *>(buffers[0]), begin, end); });
}

} // namespace sluice::SLUICE_LEVEL
