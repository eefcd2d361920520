#include "runtime/Fill.h"

#include <cstring>

namespace sluice {

template <class T> static void fillWith(uint8_t *data, size_t bytes, T value) {
  for (size_t at = 0; at < bytes; at += sizeof(T))
    std::memcpy(data + at, &value, sizeof(T));
}

/// Round to nearest, ties to even.
static uint16_t toBf16(double value) {
  float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void fillTensor(DType type, uint8_t *data, size_t bytes, double value) {
  switch (type) {
  case DType::f32:
    return fillWith(data, bytes, static_cast<float>(value));
  case DType::f64:
    return fillWith(data, bytes, value);
  case DType::f16:
    return fillWith(data, bytes, static_cast<_Float16>(value));
  case DType::bf16:
    return fillWith(data, bytes, toBf16(value));
  case DType::i8:
  case DType::u8:
  case DType::i1:
    return fillWith(data, bytes, static_cast<uint8_t>(static_cast<int64_t>(value)));
  case DType::i16:
  case DType::u16:
    return fillWith(data, bytes, static_cast<uint16_t>(static_cast<int64_t>(value)));
  case DType::i32:
  case DType::u32:
    return fillWith(data, bytes, static_cast<uint32_t>(static_cast<int64_t>(value)));
  case DType::i64:
  case DType::u64:
    return fillWith(data, bytes, static_cast<int64_t>(value));
  }
}

static size_t elementsOf(std::span<const int64_t> shape) {
  size_t count = 1;
  for (int64_t size : shape)
    count *= static_cast<size_t>(size);
  return count;
}

void copyFilled(DType type, const uint8_t *source, std::span<const int64_t> given,
                uint8_t *target, std::span<const int64_t> full, double value) {
  size_t width = dtypeSize(type);
  size_t first = 0; // dimensions before this one are stepped through
  for (size_t i = 0; i < full.size(); ++i)
    if (given[i] != full[i])
      first = i + 1;
  size_t givenBytes = elementsOf(given.subspan(first)) * width;
  size_t fullBytes = elementsOf(full.subspan(first)) * width;
  if (first == 0) {
    std::memcpy(target, source, fullBytes);
    return;
  }
  // Along dimension first - 1 the given elements are one run.
  size_t runBytes = givenBytes * static_cast<size_t>(given[first - 1]);
  size_t rowBytes = fullBytes * static_cast<size_t>(full[first - 1]);
  std::span<const int64_t> outer = full.first(first - 1);
  for (size_t row = 0, rows = elementsOf(outer); row < rows; ++row) {
    // The row's place in the given tensor, where it has one.
    size_t rest = row, from = 0, step = 1;
    bool isGiven = true;
    for (size_t i = outer.size(); i-- > 0;) {
      size_t index = rest % static_cast<size_t>(full[i]);
      rest /= static_cast<size_t>(full[i]);
      isGiven &= index < static_cast<size_t>(given[i]);
      from += index * step;
      step *= static_cast<size_t>(given[i]);
    }
    size_t copied = isGiven ? runBytes : 0;
    if (copied > 0)
      std::memcpy(target, source + from * runBytes, copied);
    fillTensor(type, target + copied, rowBytes - copied, value);
    target += rowBytes;
  }
}

} // namespace sluice
