#include "runtime/NonFinite.h"

#include <cstring>

namespace sluice {

/// By the bits: `exponent` all ones; `sign` alone beside it is -infinity.
template <class Bits>
static NonFiniteCount countBits(const uint8_t *data, size_t bytes, Bits exponent) {
  constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
  NonFiniteCount count;
  for (size_t i = 0; i + sizeof(Bits) <= bytes; i += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, data + i, sizeof value);
    if ((value & exponent) != exponent)
      continue;
    bool isMinus = value == static_cast<Bits>(sign | exponent);
    ++(isMinus ? count.minusInfinity : count.wrong);
  }
  return count;
}

NonFiniteCount countNonFinite(DType type, const uint8_t *data, size_t bytes) {
  switch (type) {
  case DType::f32:
    return countBits<uint32_t>(data, bytes, 0x7f800000);
  case DType::f64:
    return countBits<uint64_t>(data, bytes, uint64_t(0x7ff) << 52);
  case DType::f16:
    return countBits<uint16_t>(data, bytes, 0x7c00);
  case DType::bf16:
    return countBits<uint16_t>(data, bytes, 0x7f80);
  default:
    return {};
  }
}

bool NonFiniteWatch::touches(const fbs::Launch &launch,
                             const fbs::BufferInfo &buffer) const {
  for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s) {
    const auto *operands = launch.stages()->Get(s)->operands();
    for (uint32_t i = 0; i < sizeOf(operands); ++i) {
      const fbs::Operand *operand = operands->Get(i);
      if (operand->space() == fbs::Space::step &&
          operand->offset() < buffer.offset() + buffer.size() &&
          buffer.offset() < operand->offset() + operand->size())
        return true;
    }
  }
  return false;
}

/// What the launch reads has been looked at behind the launch that wrote it.
void NonFiniteWatch::launched(uint32_t index) {
  if (wrong)
    return;
  const fbs::Launch &launch = *program.launches()->Get(index);
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(i);
    if (!buffer.typed() || buffer.space() != fbs::Space::step ||
        buffer.first() > static_cast<int64_t>(index) ||
        buffer.last() < static_cast<int64_t>(index) || !touches(launch, buffer))
      continue;
    const uint8_t *data = arenas.of(fbs::Space::step) + buffer.offset();
    NonFiniteCount count =
        countNonFinite(static_cast<DType>(buffer.dtype()), data, buffer.size());
    size_t all = count.wrong + count.minusInfinity;
    if (count.wrong > 0) {
      wrong = {index, i, all};
      return;
    }
    if (all > 0 && !minusInfinity)
      minusInfinity = {index, i, all};
  }
}

std::string NonFiniteWatch::where(const Sighting &seen) const {
  const fbs::Launch &launch = *program.launches()->Get(seen.launch);
  if (program.buffers()->Get(seen.buffer)->first() < 0)
    return "the batch";
  return "'" + std::string(viewOf(launch.node())) + "' (" +
         std::string(viewOf(launch.op())) + ")";
}

std::string NonFiniteWatch::text() const {
  const std::optional<Sighting> &seen = wrong ? wrong : minusInfinity;
  if (!seen)
    return "";
  const fbs::BufferInfo &buffer = *program.buffers()->Get(seen->buffer);
  size_t values = buffer.size() / dtypeSize(static_cast<DType>(buffer.dtype()));
  std::string text = "it began in " + where(*seen) + ": " + std::to_string(seen->count) +
                     " of " + std::to_string(values) + " values of '" +
                     std::string(viewOf(buffer.name())) + "' are not finite";
  if (wrong && minusInfinity && minusInfinity->launch < wrong->launch)
    text += "; -infinity, as masks have, came before from " + where(*minusInfinity);
  return text;
}

} // namespace sluice
