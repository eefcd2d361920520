#include "runtime/Safetensors.h"

#include "runtime/Checksum.h"
#include "runtime/JsonText.h"

#include <cstdio>
#include <cstring>

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

Result<SafetensorsFile> SafetensorsFile::joined(SafetensorsFile list,
                                                std::vector<SafetensorsFile> parts) {
  list.parts = std::move(parts);
  for (uint32_t i = 0; i < list.parts.size(); ++i)
    for (TensorEntry entry : list.parts[i].entries) {
      entry.part = i + 1;
      list.entries.push_back(std::move(entry));
    }
  list.indexNames();
  if (list.byName.size() != list.entries.size())
    return Status::damaged("'" + list.fileName +
                           "' is damaged: a tensor is in two of its parts");
  return list;
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
