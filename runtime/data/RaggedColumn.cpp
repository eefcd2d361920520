// Samples of different lengths in one file.

#include "runtime/data/Column.h"

#include <algorithm>
#include <bit>

namespace sluice {
namespace {

/// The lengths as integers of at least 1.
Result<std::vector<int64_t>> readLengths(const DataSpec &spec, const StoredArray &array) {
  if (array.shape.size() != 1 || isFloat(array.dtype))
    return spec.refuse("'" + array.origin + "' has the shape " + shapeName(array.shape) +
                       " of " + std::string(dtypeName(array.dtype)) +
                       ", expected one integer for each sample");
  std::vector<int64_t> lengths(static_cast<size_t>(array.elements()));
  ElementSource source;
  source.data = array.data;
  source.dtype = array.dtype;
  source.swapped = array.bigEndian != (std::endian::native == std::endian::big);
  int64_t bad =
      convertElements(source, array.elements(), AffineMap(), DType::i64, lengths.data());
  for (size_t i = 0; bad < 0 && i < lengths.size(); ++i)
    if (lengths[i] < 1)
      bad = static_cast<int64_t>(i);
  if (bad >= 0)
    return Status::damaged("'" + array.origin + "' has the length " +
                           elementText(source, bad) + " for sample " +
                           std::to_string(bad) + ", expected at least 1");
  if (lengths.empty())
    return spec.refuse("'" + array.origin + "' has no lengths");
  return lengths;
}

int64_t elementsOf(const std::vector<int64_t> &shape, size_t first) {
  int64_t count = 1;
  for (size_t i = first; i < shape.size(); ++i)
    count *= shape[i];
  return count;
}

/// Where each sample begins: after those before it, or at a row of its own.
Result<Column::Ragged> findSamples(const DataSpec &spec, const StoredArray &array,
                                   const StoredArray &lengthsArray,
                                   const InputSpec &input) {
  auto lengths = readLengths(spec, lengthsArray);
  if (!lengths)
    return lengths.status();
  size_t rank = input.shape.size();
  bool areRows = array.shape.size() == rank;
  int64_t samples = static_cast<int64_t>(lengths->size());
  // Dimensions behind that of the lengths are the input's.
  bool fits = areRows ? array.shape[0] == samples : array.shape.size() + 1 == rank;
  for (size_t i = 2; fits && i < rank; ++i)
    fits = array.shape[areRows ? i : i - 1] == input.shape[i];
  int64_t sum = 0, longest = 0;
  for (int64_t length : *lengths) {
    longest = std::max(longest, length);
    if (length > (int64_t(1) << 40) || (sum += length) > (int64_t(1) << 48))
      return Status::damaged("'" + lengthsArray.origin + "' has impossible lengths");
  }
  fits = fits && (areRows ? longest <= array.shape[1] : sum == array.shape[0]);
  if (!fits)
    return spec.refuse("'" + array.origin + "' has the shape " + shapeName(array.shape) +
                       "; with " + std::to_string(samples) + " lengths, the longest " +
                       std::to_string(longest) + ", together " + std::to_string(sum) +
                       ", input '" + input.name + "' of shape " + shapeName(input.shape) +
                       " takes one row for each, or all samples end to end");
  Column::Ragged ragged;
  int64_t inner = elementsOf(input.shape, 2), begin = 0;
  for (size_t i = 0; i < lengths->size(); ++i) {
    ragged.begins.push_back(begin);
    begin += inner * (areRows ? array.shape[1] : (*lengths)[i]);
  }
  ragged.lengths = std::move(*lengths);
  return ragged;
}

} // namespace

Result<Column> makeRaggedColumn(const DataSpec &spec, StoredArray array,
                                const StoredArray &lengths, const InputSpec &input) {
  if (!input.batched || input.shape.size() < 2)
    return spec.refuse("input '" + input.name + "' of shape " + shapeName(input.shape) +
                       " has no dimension of lengths behind that of samples");
  auto ragged = findSamples(spec, array, lengths, input);
  if (!ragged)
    return ragged.status();
  Column column;
  column.input = input;
  column.samples = static_cast<int64_t>(ragged->lengths.size());
  column.elements = elementsOf(input.shape, 1);
  column.ragged = std::make_shared<const Column::Ragged>(std::move(*ragged));
  column.array = std::move(array);
  auto scale = spec.single("scale", "1"), mean = spec.single("mean", "0"),
       deviation = spec.single("std", "1"), layout = spec.single("layout", "chw"),
       range = spec.single("range", ":");
  for (const auto *option : {&scale, &mean, &deviation, &layout, &range})
    if (!option->ok())
      return option->status();
  if (*layout != "chw")
    return spec.refuse("layout=hwc does not go with lengths");
  auto factor = parseFraction(*scale), offset = parseFraction(*mean),
       divisor = parseFraction(*deviation);
  if (!factor || !offset || !divisor || *factor == 0 || *divisor == 0)
    return spec.refuse("scale, mean and std are one number each, scale and std not 0");
  column.maps = {{*factor / *divisor, 0 - *offset / *divisor}};
  auto part = parseRange(*range, column.samples);
  if (!part)
    return spec.refuse(part.status().message);
  column.firstSample = part->first;
  column.samples = part->second - part->first;
  return column;
}

} // namespace sluice
