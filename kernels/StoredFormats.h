#pragma once
// Forms that tensors of f32 values are stored in: fewer bits per element, most of them
// with scales beside the codes. Encoding here is the plain reference of what compiled
// programs do, bit for bit, and what converts state between formats.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// In the order of `kStoredFormats`; the numbers are written to plans.
enum class StoredFormat : uint8_t {
  fp32 = 0,
  bf16,
  fp16,
  e4m3,     // one f32 scale per tensor: largest magnitude / 448
  e5m2,     // one f32 scale per tensor: largest magnitude / 57344
  e4m3Row,  // e4m3 with an f32 scale per 1 x 128 elements
  e4m3Tile, // e4m3 with an f32 scale per 128 x 128 elements
  mxfp8,    // e4m3, a power of two (E8M0) per 1 x 32 elements
  mxfp4,    // e2m1, a power of two (E8M0) per 1 x 32 elements
  nvfp4,    // e2m1, an e4m3 scale per 1 x 16 elements, an f32 scale per tensor
};

inline constexpr int storedFormatCount = 10;

/// How a format scales its codes.
enum class ScaleKind : uint8_t { none, real, power, twoLevel };

struct FormatTraits {
  std::string_view name; // as specs spell it
  int bits;              // of a code
  ScaleKind scale;
  int64_t blockRows, blockColumns; // 0: the whole tensor
};

const FormatTraits &traitsOf(StoredFormat format);
/// By a spec's name; "fp8" is e4m3. None: no such format.
std::optional<StoredFormat> storedFormat(std::string_view name);
/// "fp32, bf16, fp16, ...", for messages.
std::string storedFormatNames();

/// A tensor as blocks see it: dimension 0 by the rest, vectors and scalars as one row.
struct MatrixShape {
  int64_t rows = 1, columns = 1;
  int64_t count() const { return rows * columns; }
};
MatrixShape matrixOf(std::span<const int64_t> shape);

/// The blocks of a tensor. Rows that do not divide into blocks 1 x n are taken as one
/// row; the last block of a row, and the last rows of tiles, may be smaller.
struct BlockGrid {
  int64_t rows = 1, columns = 1;           // of the matrix that is cut
  int64_t blockRows = 1, blockColumns = 1; // of a block
  int64_t down() const { return (rows + blockRows - 1) / blockRows; }
  int64_t across() const { return (columns + blockColumns - 1) / blockColumns; }
  int64_t count() const { return down() * across(); }
  int64_t blockOf(int64_t element) const {
    return element / columns / blockRows * across() + element % columns / blockColumns;
  }
};
BlockGrid blocksOf(StoredFormat format, std::span<const int64_t> shape);
/// Every block is whole, and codes of 4 bits fill their bytes: what programs can store.
bool isWhole(StoredFormat format, std::span<const int64_t> shape);

/// Bytes of the codes, of the scales, and of both. Of codes of 4 bits byte i has element
/// i in its lower half, element i + ceil(n / 2) in its upper.
int64_t codeBytes(StoredFormat format, std::span<const int64_t> shape);
int64_t scaleBytes(StoredFormat format, std::span<const int64_t> shape);
int64_t storedBytes(StoredFormat format, std::span<const int64_t> shape);

/// Random numbers by counter, as programs draw them when an update writes a parameter:
/// see graph.random_uniform. Without them codes are the nearest, ties to even.
struct StochasticKey {
  uint64_t seed = 0, update = 0;
  uint32_t id = 0;
};

/// Codes; scales in the order of blocks (f32, or bytes of E8M0 or e4m3); the f32 scale of
/// the tensor under `twoLevel`.
struct EncodedTensor {
  std::vector<uint8_t> codes, scales;
  float global = 0;
};

/// Scales alone: `codes` stay empty.
EncodedTensor scalesOf(StoredFormat format, std::span<const int64_t> shape,
                       std::span<const float> values);
EncodedTensor encodeTensor(StoredFormat format, std::span<const int64_t> shape,
                           std::span<const float> values,
                           std::optional<StochasticKey> stochastic = std::nullopt);
/// The uniform numbers in [0, 1) of a key's first elements.
std::vector<float> noiseOf(const StochasticKey &key, int64_t count);
/// Codes of values under scales that are there already (`codes` is written), with a
/// random number per element, or none: to nearest.
void encodeUnder(StoredFormat format, std::span<const int64_t> shape,
                 std::span<const float> values, EncodedTensor &under,
                 std::span<const float> noise = {});
void decodeTensor(StoredFormat format, std::span<const int64_t> shape,
                  const EncodedTensor &encoded, std::span<float> values);

/// What second moments are raised to before they are coded, as parts of the largest of
/// their block and of the tensor: then no code is 0 where the block is not, however it is
/// rounded (a divisor of 0 would make the update explode; Li et al., 2023, leave the code
/// of 0 out for it). At most two steps of the least code. 0: the format has no scale.
struct FloorShares {
  float ofBlock = 0, ofTensor = 0;
};
FloorShares floorShares(StoredFormat format);
void raiseAboveZero(StoredFormat format, std::span<const int64_t> shape,
                    std::span<float> values);

/// What is left of values that go through the format.
std::vector<float> roundedTo(StoredFormat format, std::span<const int64_t> shape,
                             std::span<const float> values);

} // namespace sluice
