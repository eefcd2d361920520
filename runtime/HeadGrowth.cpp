#include "runtime/HeadGrowth.h"

#include <cstring>

namespace sluice {

std::optional<size_t> grownDimension(const StateSource &source) {
  const fbs::StateTensor &tensor = *source.tensor;
  const TensorEntry &entry = *source.entry;
  bool isPlain = !source.completion && !isShard(tensor) && sizeOf(tensor.format()) == 0 &&
                 entry.slices.empty() &&
                 entry.dtype == static_cast<DType>(tensor.dtype());
  if (!isPlain || entry.shape.size() != sizeOf(tensor.shape()))
    return std::nullopt;
  std::optional<size_t> grown;
  for (uint32_t d = 0; d < sizeOf(tensor.shape()); ++d) {
    int64_t now = tensor.shape()->Get(d), before = entry.shape[d];
    if (now == before)
      continue;
    if (grown || now < before)
      return std::nullopt;
    grown = d;
  }
  return grown;
}

void copyGrown(Session &session, const StateSource &source, size_t dimension,
               const SafetensorsFile &file) {
  const fbs::StateTensor &tensor = *source.tensor;
  size_t inner = dtypeSize(source.entry->dtype), outer = 1;
  for (size_t d = 0; d < source.entry->shape.size(); ++d)
    if (d < dimension)
      outer *= static_cast<size_t>(source.entry->shape[d]);
    else if (d > dimension)
      inner *= static_cast<size_t>(source.entry->shape[d]);
  size_t before = inner * static_cast<size_t>(source.entry->shape[dimension]);
  size_t now =
      inner * static_cast<size_t>(tensor.shape()->Get(static_cast<uint32_t>(dimension)));
  uint8_t *target = session.state(viewOf(tensor.name())).data();
  for (size_t i = 0; i < outer; ++i)
    file.read(*source.entry, before * i, {target + now * i, before});
}

std::string growthText(const StateSource &source) {
  auto listed = [](auto size, size_t rank) {
    std::string text = "[";
    for (size_t d = 0; d < rank; ++d)
      text += (d == 0 ? "" : ", ") + std::to_string(size(d));
    return text + "]";
  };
  size_t rank = source.entry->shape.size();
  return "'" + source.entry->name + "' has grown from " +
         listed([&](size_t d) { return source.entry->shape[d]; }, rank) + " to " +
         listed(
             [&](size_t d) {
               return source.tensor->shape()->Get(static_cast<uint32_t>(d));
             },
             rank);
}

} // namespace sluice
