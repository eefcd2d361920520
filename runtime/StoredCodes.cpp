#include "runtime/StoredCodes.h"

#include "runtime/StoredForm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace sluice {

namespace {

constexpr std::string_view parameterPrefix = "param/", momentPrefix = "opt/",
                           masterPrefix = "master/", scalePrefix = "scale/",
                           blocksSuffix = "/blocks", tensorSuffix = "/tensor",
                           historySuffix = "/history";

std::string_view bareName(const fbs::StateTensor &tensor) {
  std::string_view name = viewOf(tensor.name());
  return name.starts_with(parameterPrefix) ? name.substr(parameterPrefix.size()) : name;
}

std::string scaleName(const fbs::StateTensor &tensor, std::string_view suffix) {
  return std::string(scalePrefix).append(bareName(tensor)).append(suffix);
}
std::string masterName(const fbs::StateTensor &tensor) {
  return std::string(masterPrefix).append(bareName(tensor));
}

/// Where codes and scales of a parameter lie. Without scales spans are empty.
template <class Byte> struct Place {
  StoredFormat format;
  std::vector<int64_t> shape;
  std::span<Byte> codes, blocks, tensor, master, history;
};

template <class Byte, class Owner>
Place<Byte> placeOf(Owner &session, const fbs::StateTensor &tensor) {
  Place<Byte> place;
  place.format = *codedFormat(tensor);
  place.shape = valueShapeOf(tensor);
  place.codes = session.state(viewOf(tensor.name()));
  auto find = [&](const std::string &name) {
    return session.plan().state(name) ? std::span<Byte>(session.state(name))
                                      : std::span<Byte>();
  };
  place.blocks = find(scaleName(tensor, blocksSuffix));
  place.tensor = find(scaleName(tensor, tensorSuffix));
  place.master = find(masterName(tensor));
  place.history = find(scaleName(tensor, historySuffix));
  return place;
}

EncodedTensor encodedOf(const Place<const uint8_t> &place) {
  EncodedTensor encoded;
  encoded.codes.assign(place.codes.begin(), place.codes.end());
  encoded.scales.assign(place.blocks.begin(), place.blocks.end());
  if (!place.tensor.empty())
    std::memcpy(&encoded.global, place.tensor.data(), sizeof encoded.global);
  return encoded;
}

/// The scales of the parameter in a file, if they are of the same format.
std::optional<EncodedTensor> scalesIn(const SafetensorsFile &file,
                                      const fbs::StateTensor &tensor) {
  StoredFormat format = *codedFormat(tensor);
  auto found = file.metadata().find(formatKey(bareName(tensor)));
  if (found == file.metadata().end() || found->second != traitsOf(format).name)
    return std::nullopt;
  EncodedTensor encoded;
  std::vector<int64_t> shape = valueShapeOf(tensor);
  const TensorEntry *blocks = file.find(scaleName(tensor, blocksSuffix));
  bool isTwoLevel = traitsOf(format).scale == ScaleKind::twoLevel;
  const TensorEntry *global = file.find(scaleName(tensor, tensorSuffix));
  auto wanted = static_cast<uint64_t>(scaleBytes(format, shape) - (isTwoLevel ? 4 : 0));
  if (!blocks || blocks->bytes != wanted ||
      (isTwoLevel && (!global || global->bytes != sizeof encoded.global)))
    return std::nullopt;
  const uint8_t *bytes = file.data(*blocks).data();
  encoded.scales.assign(bytes, bytes + blocks->bytes);
  if (isTwoLevel)
    std::memcpy(&encoded.global, file.data(*global).data(), sizeof encoded.global);
  return encoded;
}

/// As if the largest magnitude had always been that of these values.
void setHistory(std::span<uint8_t> history, std::span<const float> values) {
  float largest = 0;
  for (float value : values)
    largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i + sizeof largest <= history.size(); i += sizeof largest)
    std::memcpy(history.data() + i, &largest, sizeof largest);
}

bool hasShape(const fbs::StateTensor &tensor, DType type, uint64_t bytes) {
  return static_cast<DType>(tensor.dtype()) == type && tensor.size() == bytes;
}

Status wrong(const fbs::StateTensor &tensor, const std::string &what) {
  return Status::damaged("plan refused: state '" + std::string(viewOf(tensor.name())) +
                         "' " + what);
}

bool mayHaveFormat(const fbs::StateTensor &tensor) {
  std::string_view name = viewOf(tensor.name());
  return (tensor.role() == fbs::Role::parameter && name.starts_with(parameterPrefix)) ||
         (tensor.role() == fbs::Role::moment && name.starts_with(momentPrefix));
}

/// The product of a shape, or nothing where it is malformed or beyond any plan.
std::optional<uint64_t> countOf(const flatbuffers::Vector<int64_t> *shape) {
  std::optional<uint64_t> bytes = tensorBytes(DType::u8, shape);
  return bytes;
}

} // namespace

std::optional<StoredFormat> codedFormat(const fbs::StateTensor &tensor) {
  std::optional<StoredFormat> format = storedFormat(viewOf(tensor.format()));
  return format && traitsOf(*format).bits < 16 ? format : std::nullopt;
}

std::vector<int64_t> valueShapeOf(const fbs::StateTensor &tensor) {
  const auto *shape = tensor.value_shape();
  return shape ? std::vector<int64_t>(shape->begin(), shape->end())
               : std::vector<int64_t>();
}

Status checkCodes(const fbs::Plan &plan, VisitBudget &budget) {
  std::map<std::string_view, const fbs::StateTensor *> state;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    state[viewOf(plan.state()->Get(i)->name())] = plan.state()->Get(i);
  auto find = [&](const std::string &name) -> const fbs::StateTensor * {
    auto found = state.find(name);
    return found == state.end() ? nullptr : found->second;
  };
  for (auto [name, tensor] : state) {
    std::string_view text = viewOf(tensor->format());
    if (text.empty())
      continue;
    if (!storedFormat(text) || !mayHaveFormat(*tensor))
      return wrong(*tensor, "is in the format '" + std::string(text) +
                                "', expected a parameter or a moment in one of " +
                                storedFormatNames());
    std::optional<StoredFormat> format = codedFormat(*tensor);
    if (!format)
      continue;
    if (!budget.take(sizeOf(tensor->value_shape())))
      return wrong(*tensor, "has a shape that is too long");
    std::optional<uint64_t> count = countOf(tensor->value_shape());
    std::vector<int64_t> shape = valueShapeOf(*tensor);
    if (!count || *count == 0 || *count > tensor->size() * 2 || !isWhole(*format, shape))
      return wrong(*tensor, "has values of a shape that its codes do not fill");
    const FormatTraits &traits = traitsOf(*format);
    bool isTwoLevel = traits.scale == ScaleKind::twoLevel;
    auto blockBytes =
        static_cast<uint64_t>(scaleBytes(*format, shape) - (isTwoLevel ? 4 : 0));
    const fbs::StateTensor *blocks = find(scaleName(*tensor, blocksSuffix));
    const fbs::StateTensor *whole = find(scaleName(*tensor, tensorSuffix));
    const fbs::StateTensor *master = find(masterName(*tensor));
    DType scaleType = traits.scale == ScaleKind::real ? DType::f32 : DType::i8;
    auto codeSize = static_cast<uint64_t>(codeBytes(*format, shape));
    if (!hasShape(*tensor, DType::i8, codeSize) || !blocks ||
        !hasShape(*blocks, scaleType, blockBytes) ||
        (isTwoLevel && (!whole || !hasShape(*whole, DType::f32, 4))) ||
        (master && !hasShape(*master, DType::f32, *count * 4)))
      return wrong(*tensor, "has no codes, scales and master of the format '" +
                                std::string(text) + "'");
  }
  return Status::success();
}

const fbs::StateTensor *codedOwner(const Plan &plan, const fbs::StateTensor &tensor) {
  std::string_view name = viewOf(tensor.name());
  if (name.starts_with(masterPrefix))
    name.remove_prefix(masterPrefix.size());
  else if (name.starts_with(scalePrefix) &&
           (name.ends_with(blocksSuffix) || name.ends_with(tensorSuffix)))
    name = name.substr(scalePrefix.size(), name.rfind('/') - scalePrefix.size());
  else
    return nullptr;
  const fbs::StateTensor *owner = plan.state(std::string(parameterPrefix).append(name));
  if (!owner && name.starts_with(momentPrefix))
    owner = plan.state(name);
  return owner && codedFormat(*owner) ? owner : nullptr;
}

std::string formatKey(std::string_view parameter) {
  if (parameter.starts_with(parameterPrefix))
    parameter.remove_prefix(parameterPrefix.size());
  return std::string("format/").append(parameter);
}

std::vector<float> decodeState(const Session &session, const fbs::StateTensor &tensor) {
  Place<const uint8_t> place = placeOf<const uint8_t>(session, tensor);
  MatrixShape matrix = matrixOf(place.shape);
  std::vector<float> values(static_cast<size_t>(matrix.count()));
  if (!place.master.empty())
    std::memcpy(values.data(), place.master.data(), place.master.size());
  else
    decodeTensor(place.format, place.shape, encodedOf(place), values);
  return values;
}

uint64_t encodeState(Session &session, const fbs::StateTensor &tensor,
                     std::span<const float> values, const SafetensorsFile *file) {
  Place<uint8_t> place = placeOf<uint8_t>(session, tensor);
  std::optional<EncodedTensor> kept;
  // Codes beside a master always follow from it.
  if (file && place.master.empty())
    kept = scalesIn(*file, tensor);
  std::string_view name = viewOf(tensor.name());
  std::vector<float> raised;
  if (!kept && name.starts_with(momentPrefix) && isPositiveMoment(name)) {
    raised.assign(values.begin(), values.end());
    raiseAboveZero(place.format, place.shape, raised);
    values = raised;
  }
  EncodedTensor encoded =
      kept ? std::move(*kept) : scalesOf(place.format, place.shape, values);
  encodeUnder(place.format, place.shape, values, encoded);
  if (!file || !file->find(scaleName(tensor, historySuffix)))
    setHistory(place.history, values);
  std::ranges::copy(encoded.codes, place.codes.begin());
  std::ranges::copy(encoded.scales, place.blocks.begin());
  if (!place.tensor.empty())
    std::memcpy(place.tensor.data(), &encoded.global, sizeof encoded.global);
  if (!place.master.empty()) {
    std::memcpy(place.master.data(), values.data(), values.size_bytes());
    return 0;
  }
  std::vector<float> back(values.size());
  decodeTensor(place.format, place.shape, encoded, back);
  uint64_t changed = 0;
  for (size_t i = 0; i < values.size(); ++i)
    changed += !(back[i] == values[i]);
  return changed;
}

} // namespace sluice
