#pragma once
// Tensors by name in a file: u64 length of the header, a JSON header, the data. Read
// strictly: what is not exactly a safetensors file of known element types is refused.

#include "runtime/AtomicFile.h"
#include "runtime/DType.h"
#include "runtime/MappedFile.h"
#include "runtime/Status.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t offset = 0; // in the data
  uint64_t bytes = 0;
  uint32_t part = 0; // of a file that is joined from several
};

using Metadata = std::map<std::string, std::string>;

/// Reads the JSON header. `dataBytes` is what follows it in the file. Checks types,
/// shapes, and that the tensors fill the data without overlap or gap.
Status parseSafetensorsHeader(std::string_view json, uint64_t dataBytes,
                              std::vector<TensorEntry> &tensors, Metadata &metadata);

class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::string &path);
  /// The bytes outlive the result. `name` is for messages.
  static Result<SafetensorsFile> parse(std::span<const uint8_t> bytes,
                                       const std::string &name);

  /// `list` with the tensors of `parts` beside its own. Damaged when two have one name.
  static Result<SafetensorsFile> joined(SafetensorsFile list,
                                        std::vector<SafetensorsFile> parts);

  const std::vector<TensorEntry> &tensors() const { return entries; }
  const TensorEntry *find(std::string_view name) const;
  /// Unaligned in general: copy, don't cast.
  std::span<const uint8_t> data(const TensorEntry &entry) const {
    const SafetensorsFile &file = entry.part == 0 ? *this : parts[entry.part - 1];
    return file.content.subspan(entry.offset, entry.bytes);
  }
  const Metadata &metadata() const { return keyValues; }
  const std::string &name() const { return fileName; }

  /// True when the file carries a checksum of this writer.
  bool hasChecksum() const;
  /// As it is written in the file; "" when there is none.
  std::string_view checksum() const;
  /// StatusCode::damaged when it carries one that does not match. Reads the whole file.
  Status verifyChecksum() const;

private:
  void indexNames();

  std::shared_ptr<const MappedFile> mapping;
  std::vector<SafetensorsFile> parts;
  std::string_view header;
  std::span<const uint8_t> content;
  std::vector<TensorEntry> entries;
  std::unordered_map<std::string_view, size_t> byName;
  Metadata keyValues;
  std::string fileName;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const void *data = nullptr;
  uint64_t bytes = 0;
};

/// Writes atomically, in the order given, with a checksum in the metadata (key
/// "checksum", over the header with the checksum's digits as zeros, and the data).
Status writeSafetensors(const std::string &path, std::span<const TensorToWrite> tensors,
                        const Metadata &metadata, AtomicFile::Observer observer = {});

} // namespace sluice
