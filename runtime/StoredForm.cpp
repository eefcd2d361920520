#include "runtime/StoredForm.h"

#include "runtime/DynamicMap.h"
#include "runtime/RangeCode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace sluice {

namespace {

template <class T> T load(const uint8_t *data, uint64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <class T> void store(uint8_t *data, uint64_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

float fromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float fromHalf(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

/// To nearest, ties to even; a NaN stays one.
uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t toHalf(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

/// Half up, in the arithmetic of the bits: the low half then fits 16 bits with a sign for
/// every pattern, NaNs and infinities included.
uint16_t highHalf(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0x8000) >> 16);
}

float joined(uint16_t high, int16_t low) {
  return std::bit_cast<float>((uint32_t{high} << 16) +
                              static_cast<uint32_t>(int32_t{low}));
}

float widened(DType type, uint16_t bits) {
  return type == DType::bf16 ? fromBf16(bits) : fromHalf(bits);
}

uint16_t nearest(DType type, float value) {
  return type == DType::bf16 ? toBf16(value) : toHalf(value);
}

/// A NaN that loses a part of its payload is not a rounded value.
bool isChanged(float before, float after) {
  return std::bit_cast<uint32_t>(before) != std::bit_cast<uint32_t>(after) &&
         !(std::isnan(before) && std::isnan(after));
}

/// Codes of one block and back: the scale is the largest magnitude, and where that is so
/// small that its inverse may not be finite all codes are 0.
class BlockCode {
public:
  explicit BlockCode(StoredForm form)
      : isRange(form.completion == Completion::range), isPositive(form.isPositive),
        map(form.isPositive) {}

  float scaleOf(std::span<const float> block) const {
    if (isRange)
      return range_code::scaleOf(block, isPositive);
    float largest = 0;
    for (float value : block)
      largest = std::max(largest, std::fabs(value));
    return largest;
  }
  int8_t encode(float value, float scale) const {
    constexpr float leastNormal = 0x1p-126f;
    if (isRange)
      return range_code::encode(value, scale, isPositive);
    return map.encode(value * (scale >= leastNormal ? 1 / scale : 0));
  }
  float decode(int8_t code, float scale) const {
    return isRange ? range_code::decode(code, scale) : map.decode(code) * scale;
  }

private:
  bool isRange, isPositive;
  DynamicMap map;
};

void readBlocks(const StoredTensor<const uint8_t> &from, uint64_t first,
                std::span<float> values) {
  BlockCode code(from.form);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = code.decode(load<int8_t>(from.data, first + i),
                            load<float>(from.completion, (first + i) / from.form.block));
}

/// As the update writes them.
uint64_t writeBlocks(const StoredTensor<uint8_t> &to, uint64_t first,
                     std::span<const float> values) {
  BlockCode code(to.form);
  uint64_t changed = 0;
  for (size_t begin = 0; begin < values.size(); begin += to.form.block) {
    auto block =
        values.subspan(begin, std::min<size_t>(to.form.block, values.size() - begin));
    float scale = code.scaleOf(block);
    store(to.completion, (first + begin) / to.form.block, scale);
    for (size_t i = 0; i < block.size(); ++i) {
      int8_t stored = code.encode(block[i], scale);
      store(to.data, first + begin + i, stored);
      changed += isChanged(block[i], code.decode(stored, scale));
    }
  }
  return changed;
}

} // namespace

bool isPositiveMoment(std::string_view name) {
  std::string_view state = name.substr(name.rfind('/') + 1);
  return state == "v" || state == "max_v" || state == "sum" || state == "square_avg";
}

std::string formText(StoredForm form) {
  if (form.hasCodes())
    return std::string(traitsOf(form.format).name) +
           (form.completion == Completion::master ? " with an f32 master" : "");
  if (form.hasBlocks())
    return (form.completion == Completion::scale ? "int8" : "fp8") +
           std::string(" in blocks of ") + std::to_string(form.block);
  std::string text(dtypeName(form.dtype));
  if (form.dtype == DType::f32)
    return text;
  switch (form.completion) {
  case Completion::low:
    return text + " with a split master";
  case Completion::master:
    return text + " with an f32 master";
  case Completion::nothing:
  case Completion::scale:
  case Completion::range:
    break;
  }
  return text + " without a master";
}

uint64_t completionBytes(StoredForm form, uint64_t count) {
  switch (form.completion) {
  case Completion::nothing:
    break;
  case Completion::low:
    return count * sizeof(uint16_t);
  case Completion::master:
    return count * sizeof(float);
  case Completion::scale:
  case Completion::range:
    return (count + form.block - 1) / form.block * sizeof(float);
  }
  return 0;
}

void readExact(const StoredTensor<const uint8_t> &from, uint64_t first,
               std::span<float> values) {
  if (from.form.hasBlocks())
    return readBlocks(from, first, values);
  bool isHere = from.form.dtype == DType::f32;
  if (isHere || from.form.completion == Completion::master) {
    const uint8_t *exact = isHere ? from.data : from.completion;
    if (!values.empty())
      std::memcpy(values.data(), exact + first * sizeof(float), values.size_bytes());
    return;
  }
  bool isSplit = from.form.completion == Completion::low;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = load<uint16_t>(from.data, first + i);
    values[i] = isSplit ? joined(bits, load<int16_t>(from.completion, first + i))
                        : widened(from.form.dtype, bits);
  }
}

uint64_t writeExact(const StoredTensor<uint8_t> &to, uint64_t first,
                    std::span<const float> values) {
  if (values.empty())
    return 0;
  if (to.form.hasBlocks())
    return writeBlocks(to, first, values);
  bool isHere = to.form.dtype == DType::f32;
  if (isHere || to.form.completion == Completion::master)
    std::memcpy((isHere ? to.data : to.completion) + first * sizeof(float), values.data(),
                values.size_bytes());
  if (isHere)
    return 0;
  bool isSplit = to.form.completion == Completion::low;
  uint64_t changed = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = isSplit ? highHalf(values[i]) : nearest(to.form.dtype, values[i]);
    store(to.data, first + i, bits);
    if (isSplit)
      store(to.completion, first + i,
            static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) & 0xffff));
    else
      changed += isChanged(values[i], widened(to.form.dtype, bits));
  }
  return to.form.isExact() ? 0 : changed;
}

uint64_t convertStored(const StoredTensor<const uint8_t> &from,
                       const StoredTensor<uint8_t> &to) {
  if (from.form == to.form) {
    uint64_t completion = completionBytes(from.form, from.count);
    if (from.count > 0)
      std::memcpy(to.data, from.data, from.count * dtypeSize(from.form.dtype));
    if (completion > 0)
      std::memcpy(to.completion, from.completion, completion);
    return 0;
  }
  std::array<float, maxStoredBlock> part;
  uint64_t block = std::max<uint64_t>(to.form.block, 1);
  uint64_t whole = part.size() / block * block, changed = 0;
  for (uint64_t first = 0; first < from.count; first += whole) {
    size_t size = std::min(whole, from.count - first);
    readExact(from, first, {part.data(), size});
    changed += writeExact(to, first, {part.data(), size});
  }
  return changed;
}

} // namespace sluice
