#include "kernels/StoredFormats.h"

#include "kernels/Philox.h"

#include "kernels/Minifloat.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace sluice {

namespace {

constexpr FormatTraits kStoredFormats[storedFormatCount] = {
    {"fp32", 32, ScaleKind::none, 0, 0},
    {"bf16", 16, ScaleKind::none, 0, 0},
    {"fp16", 16, ScaleKind::none, 0, 0},
    {"e4m3", 8, ScaleKind::real, 0, 0},
    {"e5m2", 8, ScaleKind::real, 0, 0},
    {"e4m3_1x128", 8, ScaleKind::real, 1, 128},
    {"e4m3_128x128", 8, ScaleKind::real, 128, 128},
    {"mxfp8", 8, ScaleKind::power, 1, 32},
    {"mxfp4", 4, ScaleKind::power, 1, 32},
    {"nvfp4", 4, ScaleKind::twoLevel, 1, 16},
};

const Minifloat &elementOf(StoredFormat format) {
  if (format == StoredFormat::e5m2)
    return minifloat::e5m2;
  bool isFour = format == StoredFormat::mxfp4 || format == StoredFormat::nvfp4;
  return isFour ? minifloat::e2m1 : minifloat::e4m3;
}

int64_t countOf(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// 16 bits of a value; stochastic rounding adds noise to the bits that are cut.
uint16_t toHalf(StoredFormat format, float x, minifloat::Rounding rounding) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  bool isFinite = (bits & 0x7F800000) != 0x7F800000;
  if (format == StoredFormat::bf16) {
    if (!isFinite)
      return static_cast<uint16_t>((bits & 0x7FFFFF ? bits | 0x400000 : bits) >> 16);
    uint32_t added = rounding.isStochastic ? static_cast<uint32_t>(rounding.noise * 65536)
                                           : 0x7FFF + (bits >> 16 & 1);
    return static_cast<uint16_t>((bits + added) >> 16);
  }
  if (!rounding.isStochastic || !isFinite)
    return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  // What stochastic rounding stores in fp16 never becomes infinite.
  constexpr Minifloat half = {10, 15, 16, 65504, 0};
  return static_cast<uint16_t>(minifloat::encode(half, x, rounding));
}

float fromHalf(StoredFormat format, uint16_t bits) {
  if (format == StoredFormat::bf16)
    return std::bit_cast<float>(uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

template <class T> T loadAt(const std::vector<uint8_t> &bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <class T> void storeAt(std::vector<uint8_t> &bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

/// Largest magnitudes of the blocks; a NaN stays one.
std::vector<float> largestOf(const BlockGrid &grid, std::span<const float> values) {
  std::vector<float> largest(static_cast<size_t>(grid.count()), 0.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    float &most = largest[grid.blockOf(static_cast<int64_t>(i))];
    float size = std::fabs(values[i]);
    if (!(size <= most))
      most = std::isnan(most) ? most : size;
  }
  return largest;
}

void findScales(StoredFormat format, const BlockGrid &grid, std::span<const float> values,
                EncodedTensor &encoded) {
  const Minifloat &element = elementOf(format);
  std::vector<float> largest = largestOf(grid, values);
  ScaleKind kind = traitsOf(format).scale;
  if (kind == ScaleKind::twoLevel) {
    float most = 0;
    for (float size : largest)
      if (!(size <= most))
        most = std::isnan(most) ? most : size;
    encoded.global =
        minifloat::linearScale(most, minifloat::e4m3.largest * element.largest);
  }
  for (size_t i = 0; i < largest.size(); ++i)
    if (kind == ScaleKind::real)
      storeAt(encoded.scales, i, minifloat::linearScale(largest[i], element.largest));
    else if (kind == ScaleKind::power)
      encoded.scales[i] = static_cast<uint8_t>(minifloat::powerCode(element, largest[i]));
    else
      encoded.scales[i] = static_cast<uint8_t>(minifloat::encode(
          minifloat::e4m3,
          minifloat::scaled(largest[i] / element.largest, encoded.global), {}));
}

float scaleAt(StoredFormat format, const EncodedTensor &encoded, int64_t block) {
  switch (traitsOf(format).scale) {
  case ScaleKind::none:
    break;
  case ScaleKind::real:
    return loadAt<float>(encoded.scales, block);
  case ScaleKind::power:
    return minifloat::powerOf(encoded.scales[block]);
  case ScaleKind::twoLevel:
    return minifloat::decode(minifloat::e4m3, encoded.scales[block]) * encoded.global;
  }
  return 1;
}

} // namespace

const FormatTraits &traitsOf(StoredFormat format) {
  return kStoredFormats[static_cast<int>(format)];
}

std::optional<StoredFormat> storedFormat(std::string_view name) {
  if (name == "fp8")
    return StoredFormat::e4m3;
  for (int i = 0; i < storedFormatCount; ++i)
    if (kStoredFormats[i].name == name)
      return static_cast<StoredFormat>(i);
  return std::nullopt;
}

std::string storedFormatNames() {
  std::string names;
  for (const FormatTraits &traits : kStoredFormats)
    names.append(names.empty() ? "" : ", ").append(traits.name);
  return names;
}

MatrixShape matrixOf(std::span<const int64_t> shape) {
  if (shape.size() < 2)
    return {1, countOf(shape)};
  return {shape[0], countOf(shape.subspan(1))};
}

BlockGrid blocksOf(StoredFormat format, std::span<const int64_t> shape) {
  const FormatTraits &traits = traitsOf(format);
  MatrixShape matrix = matrixOf(shape);
  int64_t count = std::max<int64_t>(matrix.count(), 1);
  if (traits.blockColumns == 0) // one block, or no scale at all
    return {1, count, 1, count};
  if (traits.blockRows == 1 && matrix.columns % traits.blockColumns != 0)
    matrix = {1, count};
  int64_t rows = std::max<int64_t>(matrix.rows, 1);
  int64_t columns = std::max<int64_t>(matrix.columns, 1);
  return {rows, columns, std::min(rows, traits.blockRows),
          std::min(columns, traits.blockColumns)};
}

bool isWhole(StoredFormat format, std::span<const int64_t> shape) {
  BlockGrid grid = blocksOf(format, shape);
  bool fills = traitsOf(format).bits >= 8 || countOf(shape) % 2 == 0;
  return fills && grid.rows % grid.blockRows == 0 &&
         grid.columns % grid.blockColumns == 0;
}

int64_t codeBytes(StoredFormat format, std::span<const int64_t> shape) {
  return (countOf(shape) * traitsOf(format).bits + 7) / 8;
}

int64_t scaleBytes(StoredFormat format, std::span<const int64_t> shape) {
  int64_t blocks = blocksOf(format, shape).count();
  switch (traitsOf(format).scale) {
  case ScaleKind::none:
    break;
  case ScaleKind::real:
    return blocks * 4;
  case ScaleKind::power:
    return blocks;
  case ScaleKind::twoLevel:
    return blocks + 4;
  }
  return 0;
}

int64_t storedBytes(StoredFormat format, std::span<const int64_t> shape) {
  return codeBytes(format, shape) + scaleBytes(format, shape);
}

std::vector<float> noiseOf(const StochasticKey &key, int64_t count) {
  std::vector<float> noise(count);
  std::array<uint32_t, 4> words{};
  for (int64_t i = 0; i < count; ++i) {
    if (i % 4 == 0)
      words = philox(
          {static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(key.update), key.id},
          philoxKey(key.seed));
    noise[i] = static_cast<float>(words[i % 4] >> 8) * 0x1p-24f;
  }
  return noise;
}

EncodedTensor scalesOf(StoredFormat format, std::span<const int64_t> shape,
                       std::span<const float> values) {
  EncodedTensor encoded;
  ScaleKind kind = traitsOf(format).scale;
  if (kind != ScaleKind::none) {
    BlockGrid grid = blocksOf(format, shape);
    encoded.scales.resize(grid.count() * (kind == ScaleKind::real ? 4 : 1));
    findScales(format, grid, values, encoded);
  }
  return encoded;
}

EncodedTensor encodeTensor(StoredFormat format, std::span<const int64_t> shape,
                           std::span<const float> values,
                           std::optional<StochasticKey> stochastic) {
  EncodedTensor encoded = scalesOf(format, shape, values);
  std::vector<float> noise;
  if (stochastic)
    noise = noiseOf(*stochastic, static_cast<int64_t>(values.size()));
  encodeUnder(format, shape, values, encoded, noise);
  return encoded;
}

void encodeUnder(StoredFormat format, std::span<const int64_t> shape,
                 std::span<const float> values, EncodedTensor &under,
                 std::span<const float> noise) {
  under.codes.assign(codeBytes(format, shape), 0);
  const FormatTraits &traits = traitsOf(format);
  if (format == StoredFormat::fp32) {
    if (!values.empty())
      std::memcpy(under.codes.data(), values.data(), values.size_bytes());
    return;
  }
  BlockGrid grid = blocksOf(format, shape);
  auto count = static_cast<int64_t>(values.size()), half = (count + 1) / 2;
  for (int64_t i = 0; i < count; ++i) {
    minifloat::Rounding rounding;
    if (!noise.empty())
      rounding = {true, noise[i]};
    if (traits.scale == ScaleKind::none) {
      storeAt(under.codes, i, toHalf(format, values[i], rounding));
      continue;
    }
    float x = minifloat::scaled(values[i], scaleAt(format, under, grid.blockOf(i)));
    auto code = static_cast<uint8_t>(minifloat::encode(elementOf(format), x, rounding));
    if (traits.bits == 8)
      under.codes[i] = code;
    else
      under.codes[i % half] |= i < half ? code : static_cast<uint8_t>(code << 4);
  }
}

void decodeTensor(StoredFormat format, std::span<const int64_t> shape,
                  const EncodedTensor &encoded, std::span<float> values) {
  const FormatTraits &traits = traitsOf(format);
  if (format == StoredFormat::fp32) {
    if (!values.empty())
      std::memcpy(values.data(), encoded.codes.data(), values.size_bytes());
    return;
  }
  BlockGrid grid = blocksOf(format, shape);
  auto count = static_cast<int64_t>(values.size()), half = (count + 1) / 2;
  for (int64_t i = 0; i < count; ++i) {
    if (traits.scale == ScaleKind::none) {
      values[i] = fromHalf(format, loadAt<uint16_t>(encoded.codes, i));
      continue;
    }
    uint32_t code = traits.bits == 8 ? encoded.codes[i]
                    : i < half       ? encoded.codes[i] & 15u
                                     : encoded.codes[i - half] >> 4;
    values[i] = minifloat::decode(elementOf(format), code) *
                scaleAt(format, encoded, grid.blockOf(i));
  }
}

FloorShares floorShares(StoredFormat format) {
  ScaleKind kind = traitsOf(format).scale;
  if (kind == ScaleKind::none)
    return {};
  // Powers of two are up to twice what the largest needs; a little more for roundings.
  constexpr float steps = 2 * (1 + 0x1p-20f);
  const Minifloat &element = elementOf(format);
  FloorShares shares = {steps * element.unit() / element.largest, 0};
  if (kind == ScaleKind::twoLevel) // so that the scale of no block is 0
    shares.ofTensor = minifloat::e4m3.unit() / minifloat::e4m3.largest;
  return shares;
}

void raiseAboveZero(StoredFormat format, std::span<const int64_t> shape,
                    std::span<float> values) {
  FloorShares shares = floorShares(format);
  BlockGrid grid = blocksOf(format, shape);
  std::vector<float> largest = largestOf(grid, values);
  float most = 0;
  for (float size : largest)
    most = std::max(most, size);
  for (size_t i = 0; i < values.size(); ++i) {
    float floor =
        std::max(largest[grid.blockOf(static_cast<int64_t>(i))] * shares.ofBlock,
                 most * shares.ofTensor);
    values[i] = values[i] < floor ? floor : values[i];
  }
}

std::vector<float> roundedTo(StoredFormat format, std::span<const int64_t> shape,
                             std::span<const float> values) {
  std::vector<float> rounded(values.size());
  decodeTensor(format, shape, encodeTensor(format, shape, values), rounded);
  return rounded;
}

} // namespace sluice
