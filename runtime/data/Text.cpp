#include "runtime/data/Text.h"

#include "runtime/MappedFile.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

namespace sluice {
namespace {

using Bytes = std::span<const uint8_t>;

/// The code point at `at`, which moves behind it. Nothing when this is not UTF-8
/// (overlong forms and surrogates included).
std::optional<uint32_t> nextCodePoint(Bytes bytes, size_t &at) {
  uint8_t lead = bytes[at++];
  if (lead < 0x80)
    return lead;
  int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || bytes.size() - at < size_t(more))
    return std::nullopt;
  uint32_t point = lead & (0x3f >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if ((bytes[at] & 0xc0) != 0x80)
      return std::nullopt;
    point = point << 6 | (bytes[at] & 0x3f);
  }
  constexpr uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  if (point < smallest[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
    return std::nullopt;
  return point;
}

/// Calls visit(unit, position) for each byte or code point, until it returns false.
template <class Visit>
Status forEachUnit(const MappedFile &file, Vocabulary vocabulary, Visit visit) {
  Bytes bytes = file.bytes();
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    std::optional<uint32_t> unit =
        vocabulary == Vocabulary::Chars ? nextCodePoint(bytes, at) : bytes[at++];
    if (!unit)
      return Status::damaged("'" + file.path() + "' is not UTF-8 at byte " +
                             std::to_string(begin) + "; use vocab=bytes");
    if (!visit(*unit, begin))
      break;
  }
  return Status::success();
}

Result<std::vector<uint32_t>> distinctUnits(const std::string &path,
                                            Vocabulary vocabulary) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  std::set<uint32_t> units;
  Status status = forEachUnit(**file, vocabulary, [&](uint32_t unit, size_t) {
    units.insert(unit);
    return true;
  });
  if (!status.ok())
    return status;
  return std::vector<uint32_t>(units.begin(), units.end());
}

} // namespace

Result<StoredArray> readText(const std::string &path, Vocabulary vocabulary,
                             const std::string &vocabularyPath) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  StoredArray array;
  array.origin = path;
  if (vocabulary == Vocabulary::Raw) {
    array.owner = *file;
    array.data = (*file)->bytes().data();
    array.dtype = DType::u8;
    array.shape = {static_cast<int64_t>((*file)->bytes().size())};
    return array;
  }
  const std::string &from = vocabularyPath.empty() ? path : vocabularyPath;
  auto units = distinctUnits(from, vocabulary);
  if (!units)
    return units.status();

  auto ids = std::make_shared<std::vector<int32_t>>();
  ids->reserve((*file)->bytes().size());
  std::optional<size_t> unknown;
  Status status = forEachUnit(**file, vocabulary, [&](uint32_t unit, size_t position) {
    auto found = std::lower_bound(units->begin(), units->end(), unit);
    if (found == units->end() || *found != unit) {
      unknown = position;
      return false;
    }
    ids->push_back(static_cast<int32_t>(found - units->begin()));
    return true;
  });
  if (!status.ok())
    return status;
  if (unknown)
    return Status::refused("'" + path + "' has a character at byte " +
                           std::to_string(*unknown) +
                           " that is not in the vocabulary of '" + from + "'");
  array.data = reinterpret_cast<const uint8_t *>(ids->data());
  array.dtype = DType::i32;
  array.shape = {static_cast<int64_t>(ids->size())};
  array.owner = std::move(ids);
  return array;
}

Result<StoredArray> readTokens(const std::string &path, DType dtype) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  size_t bytes = (*file)->bytes().size(), width = dtypeSize(dtype);
  if (bytes == 0 || bytes % width != 0)
    return Status::damaged("'" + path + "' has " + std::to_string(bytes) +
                           " bytes, expected a positive multiple of " +
                           std::to_string(width) + " (ids of type " +
                           std::string(dtypeName(dtype)) + ")");
  StoredArray array;
  array.origin = path;
  array.owner = *file;
  array.data = (*file)->bytes().data();
  array.dtype = dtype;
  array.shape = {static_cast<int64_t>(bytes / width)};
  return array;
}

} // namespace sluice
