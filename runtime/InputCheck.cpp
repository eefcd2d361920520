#include "runtime/InputCheck.h"

#include "runtime/Buckets.h"
#include "runtime/Fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

namespace sluice {

namespace {

struct Span {
  const uint8_t *data;
  size_t elements;
};

template <class T> T element(Span span, size_t index) {
  T value;
  std::memcpy(&value, span.data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T> std::optional<size_t> firstOutside(const fbs::Port &port, Span span) {
  int64_t lower = port.lower(), upper = port.upper(), ignored = port.ignored();
  bool hasIgnored = port.has_ignored();
  for (size_t i = 0; i < span.elements; ++i) {
    T value = element<T>(span, i);
    // An unsigned value beyond int64 is above every bound.
    bool tooLarge = value > T(0) && static_cast<uint64_t>(value) > uint64_t(INT64_MAX);
    int64_t wide = static_cast<int64_t>(value);
    if (tooLarge || ((wide < lower || wide > upper) && !(hasIgnored && wide == ignored)))
      return i;
  }
  return std::nullopt;
}

/// All exponent bits set: an infinity or NaN.
template <class Bits> std::optional<size_t> firstNonFinite(Span span, Bits exponent) {
  for (size_t i = 0; i < span.elements; ++i)
    if ((element<Bits>(span, i) & exponent) == exponent)
      return i;
  return std::nullopt;
}

std::optional<size_t> firstBad(const fbs::Port &port, Span span,
                               const InputCheckOptions &options) {
  DType type = static_cast<DType>(port.dtype());
  if (isFloat(type) && options.rejectNonFinite) {
    switch (type) {
    case DType::f32:
      return firstNonFinite<uint32_t>(span, 0x7f800000u);
    case DType::f64:
      return firstNonFinite<uint64_t>(span, 0x7ff0000000000000ull);
    case DType::f16:
      return firstNonFinite<uint16_t>(span, 0x7c00u);
    default:
      return firstNonFinite<uint16_t>(span, 0x7f80u);
    }
  }
  if (!port.bounded())
    return std::nullopt;
  switch (type) {
  case DType::i8:
    return firstOutside<int8_t>(port, span);
  case DType::u8:
  case DType::i1:
    return firstOutside<uint8_t>(port, span);
  case DType::i16:
    return firstOutside<int16_t>(port, span);
  case DType::u16:
    return firstOutside<uint16_t>(port, span);
  case DType::i32:
    return firstOutside<int32_t>(port, span);
  case DType::u32:
    return firstOutside<uint32_t>(port, span);
  case DType::i64:
    return firstOutside<int64_t>(port, span);
  case DType::u64:
    return firstOutside<uint64_t>(port, span);
  default:
    return std::nullopt;
  }
}

std::string valueText(DType type, const uint8_t *data) {
  Span one = {data, 1};
  switch (type) {
  case DType::f32:
    return std::isnan(element<float>(one, 0)) ? "NaN" : "an infinity";
  case DType::f64:
    return std::isnan(element<double>(one, 0)) ? "NaN" : "an infinity";
  case DType::f16:
  case DType::bf16:
    return "not finite";
  case DType::i8:
    return std::to_string(element<int8_t>(one, 0));
  case DType::i16:
    return std::to_string(element<int16_t>(one, 0));
  case DType::u16:
    return std::to_string(element<uint16_t>(one, 0));
  case DType::i32:
    return std::to_string(element<int32_t>(one, 0));
  case DType::u32:
    return std::to_string(element<uint32_t>(one, 0));
  case DType::i64:
    return std::to_string(element<int64_t>(one, 0));
  case DType::u64:
    return std::to_string(element<uint64_t>(one, 0));
  default:
    return std::to_string(element<uint8_t>(one, 0));
  }
}

Status badValue(const fbs::Port &port, Span span, size_t index, int64_t count,
                int64_t firstSample) {
  DType type = static_cast<DType>(port.dtype());
  std::string text = "input '" + std::string(viewOf(port.name())) + "'";
  if (port.batched() && count > 0) {
    size_t perSample = span.elements / static_cast<size_t>(count);
    int64_t sample = static_cast<int64_t>(index / perSample);
    text += ", sample " + std::to_string(sample) + " of the batch (" +
            std::to_string(firstSample + sample) + " of the data), element " +
            std::to_string(index % perSample);
  } else {
    text += ", element " + std::to_string(index);
  }
  text += ": value is " + valueText(type, span.data + index * dtypeSize(type));
  if (isFloat(type))
    return Status::damaged(text + ", expected a finite number; clean the data");
  text += ", expected " + std::to_string(port.lower()) + " to " +
          std::to_string(port.upper());
  if (port.has_ignored())
    text += " or " + std::to_string(port.ignored());
  return Status::damaged(text);
}

} // namespace

/// Puts the samples given into the front of the port.
static Status copySamples(const fbs::Port &port, const void *source,
                          const BatchPart &part, size_t bytes, uint8_t *target) {
  std::array<int64_t, maxRank> full = {}, given = {};
  size_t rank = sizeOf(port.shape());
  bool isWhole = part.shape.empty();
  for (uint32_t i = 0; i < rank; ++i) {
    full[i] = port.batched() && i == 0 ? part.count : port.shape()->Get(i);
    given[i] = isWhole || i >= part.shape.size() ? full[i] : part.shape[i];
    isWhole &= given[i] == full[i];
  }
  if (isWhole) {
    std::memcpy(target, source, bytes);
    return Status::success();
  }
  std::span<const int64_t> shape(given.data(), rank);
  bool otherCount = port.batched() && given[0] != full[0];
  if (part.shape.size() != rank || otherCount || !takes(port, shape))
    return Status::usage("input '" + std::string(viewOf(port.name())) + "' has shape " +
                         shapeText(part.shape) + ", which does not fit into " +
                         shapeText(port.shape()));
  copyFilled(static_cast<DType>(port.dtype()), static_cast<const uint8_t *>(source),
             shape, target, {full.data(), rank}, *fillOf(port));
  return Status::success();
}

Status copyInput(const fbs::Port &port, const void *source, const BatchPart &part,
                 const InputCheckOptions &options, uint8_t *target) {
  size_t total = port.size();
  size_t given = port.batched() ? total / static_cast<size_t>(part.batch) *
                                      static_cast<size_t>(part.count)
                                : total;
  if (given == 0)
    return Status::success();
  if (!source)
    return Status::usage("input '" + std::string(viewOf(port.name())) + "' is missing");
  if (Status status = copySamples(port, source, part, given, target); !status.ok())
    return status;
  // Checked in the copy: the caller's memory may be unaligned or change meanwhile.
  Span span = {target, given / dtypeSize(static_cast<DType>(port.dtype()))};
  if (std::optional<size_t> bad = firstBad(port, span, options))
    return badValue(port, span, *bad, part.count, part.firstSample);
  for (size_t filled = given; filled < total;) {
    size_t now = std::min(given, total - filled);
    std::memcpy(target + filled, target, now);
    filled += now;
  }
  return Status::success();
}

} // namespace sluice
