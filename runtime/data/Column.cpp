#include "runtime/data/Column.h"

#include "runtime/Fill.h"

#include <algorithm>
#include <bit>

namespace sluice {
namespace {

std::vector<int64_t> withoutOnes(const std::vector<int64_t> &shape) {
  std::vector<int64_t> result;
  for (int64_t size : shape)
    if (size != 1)
      result.push_back(size);
  return result;
}

int64_t product(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// A row-major reshape changes no order of elements, so flat and shaped may meet; two
/// different shapes are more likely a mistake.
bool compatible(const std::vector<int64_t> &found, const std::vector<int64_t> &wanted) {
  std::vector<int64_t> a = withoutOnes(found), b = withoutOnes(wanted);
  return a == b || ((a.size() <= 1 || b.size() <= 1) && product(a) == product(b));
}

/// The same rank, and no dimension larger.
bool isWithin(const std::vector<int64_t> &found, const std::vector<int64_t> &wanted) {
  bool fits = found.size() == wanted.size();
  for (size_t i = 0; fits && i < found.size(); ++i)
    fits = found[i] <= wanted[i];
  return fits;
}

/// The shape of what one `read` delivers.
std::vector<int64_t> wantedShape(const InputSpec &input) {
  auto begin = input.shape.begin() + (input.batched && !input.shape.empty() ? 1 : 0);
  return {begin, input.shape.end()};
}

Status setLayout(const DataSpec &spec, const std::vector<int64_t> &wanted,
                 Column &column) {
  auto layout = spec.single("layout", "chw");
  if (!layout)
    return layout.status();
  if (*layout != "chw" && *layout != "hwc")
    return spec.refuse("the layout is '" + *layout + "', expected chw or hwc");
  column.channelsLast = *layout == "hwc";
  if (column.channelsLast && wanted.size() != 3)
    return spec.refuse("layout=hwc needs an input of shape [batch, channels, height, "
                       "width], but '" +
                       column.input.name + "' has " + shapeName(column.input.shape));
  return Status::success();
}

/// The list of numbers of an option, one or one per channel.
Result<std::vector<double>> numbers(const DataSpec &spec, std::string_view key,
                                    double fallback) {
  const DataOption *option = spec.find(key);
  if (!option)
    return std::vector<double>{fallback};
  std::vector<double> result;
  for (const std::string &text : option->values) {
    auto number = parseFraction(text);
    if (!number || (*number == 0 && key != "mean"))
      return spec.refuse("the option '" + option->key + "' has '" + text +
                         "', expected a number" + (key == "mean" ? "" : " other than 0"));
    result.push_back(*number);
  }
  return result;
}

/// (value * scale - mean) / std, for all elements or by channel (dimension 0 of a
/// sample).
Status setMaps(const DataSpec &spec, const std::vector<int64_t> &wanted, Column &column) {
  auto scale = numbers(spec, "scale", 1), mean = numbers(spec, "mean", 0),
       deviation = numbers(spec, "std", 1);
  for (const auto *list : {&scale, &mean, &deviation})
    if (!list->ok())
      return list->status();
  size_t channels = std::max({(*scale).size(), (*mean).size(), (*deviation).size()});
  for (const auto *list : {&*scale, &*mean, &*deviation})
    if (list->size() != 1 && list->size() != channels)
      return spec.refuse("scale, mean and std list different numbers of channels");
  if (channels > 1 && (wanted.empty() || size_t(wanted[0]) != channels))
    return spec.refuse("values are given for " + std::to_string(channels) +
                       " channels, but input '" + column.input.name + "' has the shape " +
                       shapeName(column.input.shape));
  auto at = [](const std::vector<double> &list, size_t c) {
    return list.size() == 1 ? list[0] : list[c];
  };
  column.maps.clear();
  for (size_t c = 0; c < channels; ++c)
    column.maps.push_back(
        {at(*scale, c) / at(*deviation, c), 0 - at(*mean, c) / at(*deviation, c)});
  return Status::success();
}

Status setRange(const DataSpec &spec, Column &column) {
  auto text = spec.single("range", ":");
  if (!text)
    return text.status();
  auto range = parseRange(*text, column.samples);
  if (!range)
    return spec.refuse(range.status().message);
  column.firstElement += range->first * column.stride;
  column.firstSample = range->first;
  column.samples = range->second - range->first;
  return Status::success();
}

} // namespace

Result<Column> makeColumn(const DataSpec &spec, StoredArray array,
                          const InputSpec &input) {
  Column column;
  column.input = input;
  std::vector<int64_t> wanted = wantedShape(input), found = array.shape;
  if (input.batched) {
    if (found.empty() || found[0] == 0)
      return spec.refuse("'" + array.origin + "' has the shape " +
                         shapeName(array.shape) + ", expected at least one sample");
    column.samples = found[0];
    found.erase(found.begin());
  }
  Status status = setLayout(spec, wanted, column);
  if (!status.ok())
    return status;
  std::vector<int64_t> stored = wanted;
  if (column.channelsLast)
    stored = {wanted[1], wanted[2], wanted[0]};
  column.elements = column.stride = product(wanted);
  if (input.fill && found != stored && isWithin(found, stored) && !column.channelsLast) {
    column.smaller = found;
    column.stride = product(found);
  } else if (!compatible(found, stored)) {
    return spec.refuse("input '" + input.name + "' expects " +
                       (input.batched ? "samples of shape " : "the shape ") +
                       shapeName(stored) + ", found " + shapeName(found) + " in '" +
                       array.origin + "'");
  }
  column.array = std::move(array);
  status = setMaps(spec, wanted, column);
  if (!column.smaller.empty() && column.maps.size() > 1)
    return spec.refuse("values are given by channel for samples that are filled up; give "
                       "one of each");
  if (status.ok() && input.batched)
    status = setRange(spec, column);
  if (!status.ok())
    return status;
  return column;
}

Result<Column> makeWindowColumn(const DataSpec &spec, StoredArray array,
                                const InputSpec &input, int64_t largestShift) {
  Column column;
  column.input = input;
  column.elements = product(wantedShape(input));
  if (!input.batched || column.elements == 0)
    return spec.refuse("input '" + input.name + "' of shape " + shapeName(input.shape) +
                       " cannot take windows of a text");
  auto shift = spec.integer("shift", 0, 0);
  auto stride = spec.integer("stride", column.elements, 1);
  for (const auto *option : {&shift, &stride})
    if (!option->ok())
      return option->status();
  int64_t tokens = array.elements();
  if (tokens < largestShift || tokens - largestShift < column.elements)
    return spec.refuse(
        "'" + array.origin + "' has " + std::to_string(tokens) +
        " tokens, expected at least " + std::to_string(column.elements) +
        " for one window of input '" + input.name + "'" +
        (largestShift ? " and " + std::to_string(largestShift) + " more for the shift"
                      : ""));
  column.samples = (tokens - largestShift - column.elements) / *stride + 1;
  column.firstElement = *shift;
  column.stride = *stride;
  column.array = std::move(array);
  Status status = setRange(spec, column);
  if (!status.ok())
    return status;
  return column;
}

bool Column::fits(int64_t sample) const {
  if (!ragged)
    return true;
  int64_t length = lengthOf(sample), full = wantedShape(input)[0];
  return length == full || (length < full && input.fill);
}

void Column::givenShape(int64_t sample, int64_t *out) const {
  std::vector<int64_t> shape = smaller.empty() ? wantedShape(input) : smaller;
  if (ragged)
    shape[0] = lengthOf(sample);
  std::copy(shape.begin(), shape.end(), out);
}

Status Column::read(int64_t sample, uint8_t *out) const {
  if (!isFilled() || (ragged && lengthOf(sample) == wantedShape(input)[0]))
    return readStored(sample, elements, out);
  std::vector<int64_t> wanted = wantedShape(input), found(wanted.size());
  givenShape(sample, found.data());
  int64_t count = product(found);
  std::vector<uint64_t> stored(static_cast<size_t>(count)); // room for any type
  auto *bytes = reinterpret_cast<uint8_t *>(stored.data());
  Status status = readStored(sample, count, bytes);
  if (status.ok())
    copyFilled(input.dtype, bytes, found, out, wanted, *input.fill);
  return status;
}

/// The element a sample begins at.
int64_t Column::beginOf(int64_t sample) const {
  if (ragged)
    return ragged->begins[static_cast<size_t>(firstSample + sample)];
  return firstElement + (batched() ? sample * stride : 0);
}

/// The `count` elements of a sample as they are stored, converted.
Status Column::readStored(int64_t sample, int64_t count, uint8_t *out) const {
  int64_t channels = int64_t(maps.size());
  if (channelsLast)
    channels = input.shape[1];
  int64_t inner = count / channels;
  size_t width = dtypeSize(array.dtype);
  int64_t first = beginOf(sample);
  for (int64_t c = 0; c < channels; ++c) {
    int64_t begin = first + (channelsLast ? c : c * inner);
    ElementSource source;
    source.data = array.data + size_t(begin) * width;
    source.dtype = array.dtype;
    source.swapped = array.bigEndian != (std::endian::native == std::endian::big);
    source.step = channelsLast ? channels : 1;
    const AffineMap &map = maps.size() == 1 ? maps[0] : maps[size_t(c)];
    int64_t bad = convertElements(source, inner, map, input.dtype, out);
    if (bad >= 0)
      return Status::damaged(
          "'" + array.origin + "' has the value " + elementText(source, bad) +
          " in sample " + std::to_string(sample) + ", element " +
          std::to_string(c * inner + bad) + ", which input '" + input.name +
          "' of type " + std::string(dtypeName(input.dtype)) + " cannot take");
    out += size_t(inner) * dtypeSize(input.dtype);
  }
  return Status::success();
}

} // namespace sluice
