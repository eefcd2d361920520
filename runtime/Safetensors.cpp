#include "runtime/Safetensors.h"

#include "runtime/Checksum.h"
#include "runtime/JsonText.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

namespace sluice {

constexpr uint64_t maxHeaderBytes = 100'000'000; // the format's own limit
constexpr char checksumKey[] = "sluice_checksum";
constexpr char checksumMark[] = "\"sluice_checksum\":\"";
constexpr size_t checksumDigits = 16;

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  auto mapping = MappedFile::open(path);
  if (!mapping)
    return mapping.status();
  Result<SafetensorsFile> file = parse((*mapping)->bytes(), path);
  if (file)
    file->mapping = std::move(*mapping);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const uint8_t> bytes,
                                               const std::string &name) {
  uint64_t headerBytes = 0;
  if (bytes.size() < 8)
    return Status::damaged("'" + name + "' is no safetensors file: it has only " +
                           std::to_string(bytes.size()) + " bytes");
  std::memcpy(&headerBytes, bytes.data(), 8);
  if (headerBytes > bytes.size() - 8 || headerBytes > maxHeaderBytes)
    return Status::damaged("'" + name +
                           "' is cut off or no safetensors file: its header "
                           "would have " +
                           std::to_string(headerBytes) + " bytes of " +
                           std::to_string(bytes.size() - 8));
  SafetensorsFile file;
  file.fileName = name;
  file.header = {reinterpret_cast<const char *>(bytes.data()) + 8, headerBytes};
  file.content = bytes.subspan(8 + headerBytes);
  Status status = parseSafetensorsHeader(file.header, file.content.size(), file.entries,
                                         file.keyValues);
  if (!status.ok())
    return Status{status.code, "'" + name + "': " + status.message};
  file.indexNames();
  return file;
}

void SafetensorsFile::indexNames() {
  byName.clear();
  for (size_t i = 0; i < entries.size(); ++i)
    byName.emplace(entries[i].name, i);
}

std::string sliceKey(std::string_view name) { return std::string("slice/").append(name); }

std::string sliceText(uint64_t begin, std::span<const int64_t> shape) {
  std::string text = std::to_string(begin) + " ";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "x" : "") + std::to_string(shape[i]);
  return text;
}

/// Reads what sliceText writes.
static bool parseSlice(std::string_view text, uint64_t &begin,
                       std::vector<int64_t> &shape) {
  const char *at = text.data(), *end = at + text.size();
  auto number = [&](auto &value) {
    auto [next, error] = std::from_chars(at, end, value);
    bool isRead = error == std::errc() && next != at;
    at = next;
    return isRead && value >= 0;
  };
  if (!number(begin) || at == end || *at++ != ' ')
    return false;
  while (shape.size() < 16) {
    int64_t size = 0;
    if (!number(size))
      return false;
    shape.push_back(size);
    if (at == end)
      return true;
    if (*at++ != 'x')
      return false;
  }
  return false;
}

/// A whole tensor of this shape in slices, none there yet.
static std::optional<TensorEntry> wholeOf(const TensorEntry &slice,
                                          std::vector<int64_t> shape) {
  TensorEntry whole;
  whole.name = slice.name, whole.dtype = slice.dtype;
  whole.bytes = dtypeSize(slice.dtype);
  for (int64_t size : shape)
    if (__builtin_mul_overflow(whole.bytes, static_cast<uint64_t>(size), &whole.bytes))
      return std::nullopt;
  whole.shape = std::move(shape);
  return whole;
}

/// Puts the slices of a tensor in order; false unless they are the whole.
static bool isComplete(TensorEntry &whole) {
  std::ranges::sort(whole.slices, {}, &TensorEntry::Slice::begin);
  uint64_t at = 0;
  for (const TensorEntry::Slice &slice : whole.slices) {
    if (slice.begin != at || slice.bytes > whole.bytes - at)
      return false;
    at += slice.bytes;
  }
  return at == whole.bytes;
}

Result<SafetensorsFile> SafetensorsFile::joined(SafetensorsFile list,
                                                std::vector<SafetensorsFile> parts) {
  list.parts = std::move(parts);
  std::map<std::string, TensorEntry> wholes;
  auto damaged = [&](const std::string &what) {
    return Status::damaged("'" + list.fileName + "' is damaged: " + what);
  };
  for (uint32_t i = 0; i < list.parts.size(); ++i)
    for (TensorEntry entry : list.parts[i].entries) {
      entry.part = i + 1;
      auto slice = list.parts[i].keyValues.find(sliceKey(entry.name));
      if (slice == list.parts[i].keyValues.end()) {
        list.entries.push_back(std::move(entry));
        continue;
      }
      uint64_t begin = 0;
      std::vector<int64_t> shape;
      std::optional<TensorEntry> whole;
      if (parseSlice(slice->second, begin, shape))
        whole = wholeOf(entry, shape);
      if (!whole || begin > whole->bytes)
        return damaged("it is unclear of what '" + entry.name + "' is a slice");
      TensorEntry &known = wholes.try_emplace(entry.name, *whole).first->second;
      if (known.dtype != entry.dtype || known.shape != shape)
        return damaged("slices of '" + entry.name + "' differ in type or shape");
      known.slices.push_back(
          {begin * dtypeSize(entry.dtype), entry.bytes, i + 1, entry.offset});
    }
  for (auto &[name, whole] : wholes) {
    if (!isComplete(whole))
      return damaged("the slices of '" + name + "' are not the whole tensor");
    list.entries.push_back(std::move(whole));
  }
  list.indexNames();
  if (list.byName.size() != list.entries.size())
    return damaged("a tensor is in two of its parts");
  return list;
}

void SafetensorsFile::read(const TensorEntry &entry, uint64_t begin,
                           std::span<uint8_t> bytes) const {
  uint64_t end = begin + bytes.size();
  auto copy = [&](uint64_t first, uint64_t size, uint32_t part, uint64_t offset) {
    uint64_t from = std::max(begin, first), to = std::min(end, first + size);
    if (from < to)
      std::memcpy(bytes.data() + (from - begin),
                  contentOf(part).data() + offset + (from - first), to - from);
  };
  if (entry.slices.empty())
    return copy(0, entry.bytes, entry.part, entry.offset);
  for (const TensorEntry::Slice &slice : entry.slices)
    copy(slice.begin, slice.bytes, slice.part, slice.offset);
}

const TensorEntry *SafetensorsFile::find(std::string_view name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &entries[found->second];
}

bool SafetensorsFile::hasChecksum() const {
  return keyValues.contains(checksumKey) &&
         header.find(checksumMark) != std::string_view::npos;
}

std::string_view SafetensorsFile::checksum() const {
  if (!hasChecksum())
    return {};
  return header.substr(header.find(checksumMark) + sizeof checksumMark - 1,
                       checksumDigits);
}

static std::string hexText(uint64_t value) {
  char text[checksumDigits + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Status SafetensorsFile::verifyChecksum() const {
  if (!hasChecksum())
    return Status::success();
  size_t digits = header.find(checksumMark) + sizeof checksumMark - 1;
  std::string zeroed(header);
  zeroed.replace(digits, checksumDigits, checksumDigits, '0');
  WordChecksum sum;
  sum.add(zeroed.data(), zeroed.size());
  sum.add(content.data(), content.size());
  if (header.substr(digits, checksumDigits) != hexText(sum.value()))
    return Status::damaged("'" + fileName + "' is damaged: its checksum does not match");
  return Status::success();
}

static std::string headerText(std::span<const TensorToWrite> tensors,
                              const Metadata &metadata) {
  constexpr const char *tags[dtypeCount] = {"F32", "F64", "F16", "BF16", "I8",
                                            "U8",  "I16", "U16", "I32",  "U32",
                                            "I64", "U64", "BOOL"};
  std::string text = std::string("{\"__metadata__\":{") + checksumMark +
                     std::string(checksumDigits, '0') + "\"";
  for (const auto &[key, value] : metadata)
    if (key != checksumKey)
      text += "," + jsonText(key) + ":" + jsonText(value);
  text += "}";
  uint64_t offset = 0;
  for (const TensorToWrite &tensor : tensors) {
    text += "," + jsonText(tensor.name) + ":{\"dtype\":\"" +
            tags[static_cast<int>(tensor.dtype)] + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      text += (i ? "," : "") + std::to_string(tensor.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(offset) + "," +
            std::to_string(offset + tensor.bytes) + "]}";
    offset += tensor.bytes;
  }
  text += "}";
  // The data begins at a multiple of 64 bytes, which readers that map the file like.
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  return text;
}

Status writeSafetensors(const std::string &path, std::span<const TensorToWrite> tensors,
                        const Metadata &metadata, AtomicFile::Observer observer) {
  std::string header = headerText(tensors, metadata);
  WordChecksum sum;
  sum.add(header.data(), header.size());
  for (const TensorToWrite &tensor : tensors)
    sum.add(tensor.data, tensor.bytes);
  header.replace(header.find(checksumMark) + sizeof checksumMark - 1, checksumDigits,
                 hexText(sum.value()));

  AtomicFile file(path, std::move(observer));
  uint64_t headerBytes = header.size();
  Status status = file.open();
  if (status.ok())
    status = file.write(&headerBytes, sizeof headerBytes);
  if (status.ok())
    status = file.write(header.data(), header.size());
  for (const TensorToWrite &tensor : tensors)
    if (status.ok())
      status = file.write(tensor.data, tensor.bytes);
  if (status.ok())
    status = file.commit();
  return status;
}

} // namespace sluice
