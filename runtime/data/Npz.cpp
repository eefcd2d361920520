// A .npz is a ZIP of .npy files. Read through the central directory, as sizes in local
// headers may be missing; ZIP64 fields are followed.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT

#include "runtime/MappedFile.h"
#include "runtime/data/Inflate.h"
#include "runtime/data/StoredArray.h"

#include <optional>
#include <span>

namespace sluice {
namespace {

using Bytes = std::span<const uint8_t>;

uint64_t little(Bytes bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = 0; i < width; ++i)
    value |= uint64_t(bytes[at + i]) << (8 * i);
  return value;
}

struct Entry {
  std::string name;
  uint64_t method = 0, packed = 0, size = 0, localHeader = 0;
};

struct Directory {
  uint64_t offset = 0, entries = 0;
};

/// The record at the end, behind which a comment of up to 64 KiB may stand.
std::optional<Directory> findDirectory(Bytes zip) {
  constexpr size_t recordBytes = 22, locatorBytes = 20;
  if (zip.size() < recordBytes)
    return std::nullopt;
  size_t last = zip.size() - recordBytes;
  size_t first = last > 0xffff ? last - 0xffff : 0;
  for (size_t at = last + 1; at-- > first;) {
    if (little(zip, at, 4) != 0x06054b50)
      continue;
    Directory directory{little(zip, at + 16, 4), little(zip, at + 10, 2)};
    bool wide = directory.offset == 0xffffffff || directory.entries == 0xffff;
    if (wide && at >= locatorBytes && little(zip, at - locatorBytes, 4) == 0x07064b50) {
      uint64_t record = little(zip, at - locatorBytes + 8, 8);
      if (record > zip.size() || zip.size() - record < 56 ||
          little(zip, record, 4) != 0x06064b50)
        return std::nullopt;
      directory = {little(zip, record + 48, 8), little(zip, record + 32, 8)};
    }
    return directory;
  }
  return std::nullopt;
}

/// Sizes and offset of 64 bits stand in the extra field, those only that are all ones.
void readWideFields(Bytes extra, Entry &entry) {
  while (extra.size() >= 4) {
    size_t id = little(extra, 0, 2), size = little(extra, 2, 2);
    if (size > extra.size() - 4)
      return;
    Bytes field = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (id != 1)
      continue;
    for (uint64_t *value : {&entry.size, &entry.packed, &entry.localHeader})
      if (*value == 0xffffffff && field.size() >= 8) {
        *value = little(field, 0, 8);
        field = field.subspan(8);
      }
  }
}

/// The next entry of the central directory; advances `at`. Nothing when it is damaged.
std::optional<Entry> readEntry(Bytes zip, uint64_t &at) {
  constexpr size_t headerBytes = 46;
  if (at > zip.size() || zip.size() - at < headerBytes ||
      little(zip, at, 4) != 0x02014b50)
    return std::nullopt;
  size_t nameBytes = little(zip, at + 28, 2), extraBytes = little(zip, at + 30, 2),
         commentBytes = little(zip, at + 32, 2);
  uint64_t total = headerBytes + nameBytes + extraBytes + commentBytes;
  if (zip.size() - at < total)
    return std::nullopt;
  Entry entry;
  entry.method = little(zip, at + 10, 2);
  entry.packed = little(zip, at + 20, 4);
  entry.size = little(zip, at + 24, 4);
  entry.localHeader = little(zip, at + 42, 4);
  const char *name = reinterpret_cast<const char *>(zip.data() + at + headerBytes);
  entry.name.assign(name, nameBytes);
  readWideFields(zip.subspan(at + headerBytes + nameBytes, extraBytes), entry);
  at += total;
  return entry;
}

Result<StoredArray> extract(const std::shared_ptr<const MappedFile> &file,
                            const Entry &entry, const std::string &origin) {
  Bytes zip = file->bytes();
  Status damaged = Status::damaged("'" + origin + "' is a damaged entry of its zip file");
  uint64_t at = entry.localHeader;
  if (at > zip.size() || zip.size() - at < 30 || little(zip, at, 4) != 0x04034b50)
    return damaged;
  uint64_t skip = 30 + little(zip, at + 26, 2) + little(zip, at + 28, 2);
  if (zip.size() - at < skip || zip.size() - at - skip < entry.packed)
    return Status::damaged("'" + origin +
                           "' is shorter than said: " + std::to_string(entry.packed) +
                           " bytes are expected in the zip file, found fewer");
  Bytes packed = zip.subspan(at + skip, entry.packed);
  if (entry.method == 0)
    return parseNpy(packed.data(), packed.size(), file, origin);
  if (entry.method != 8)
    return Status::refused("'" + origin + "' is compressed by zip method " +
                           std::to_string(entry.method) +
                           ", expected none or deflate (numpy.savez_compressed)");
  constexpr uint64_t maxBytes = uint64_t(1) << 42;
  if (entry.size > maxBytes)
    return damaged;
  auto bytes = inflateBytes(packed, Deflated::Raw, entry.size, origin);
  if (!bytes)
    return bytes.status();
  if ((*bytes)->size() != entry.size)
    return damaged;
  return parseNpy((*bytes)->data(), (*bytes)->size(), *bytes, origin);
}

} // namespace

Result<StoredArray> readNpz(const std::string &path, const std::string &member) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  Bytes zip = (*file)->bytes();
  auto directory = findDirectory(zip);
  if (!directory)
    return Status::damaged("'" + path +
                           "' is not an npz file: it has no zip directory "
                           "at its end");
  std::string names;
  uint64_t at = directory->offset;
  for (uint64_t i = 0; i < directory->entries; ++i) {
    auto entry = readEntry(zip, at);
    if (!entry)
      return Status::damaged("'" + path + "' has a damaged zip directory");
    if (entry->name == member || entry->name == member + ".npy")
      return extract(*file, *entry, path + "#" + member);
    if (names.size() < 300)
      names += (names.empty() ? "'" : ", '") + entry->name + "'";
  }
  return Status::refused("'" + path + "' has no array '" + member + "'; it has " +
                         (names.empty() ? "none" : names));
}

} // namespace sluice
