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

  /// Of a tensor whose bytes lie in several parts: which, in order. Then `part` and
  /// `offset` mean nothing.
  struct Slice {
    uint64_t begin = 0, bytes = 0; // of the tensor
    uint32_t part = 0;
    uint64_t offset = 0; // in the data of the part
  };
  std::vector<Slice> slices;
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

  /// `list` with the tensors of `parts` beside its own. Damaged when two have one name,
  /// unless they are slices of one tensor (sliceKey) that make up the whole.
  static Result<SafetensorsFile> joined(SafetensorsFile list,
                                        std::vector<SafetensorsFile> parts);

  const std::vector<TensorEntry> &tensors() const { return entries; }
  const TensorEntry *find(std::string_view name) const;
  /// Unaligned in general: copy, don't cast. Not of a tensor in slices.
  std::span<const uint8_t> data(const TensorEntry &entry) const {
    return contentOf(entry.part).subspan(entry.offset, entry.bytes);
  }
  /// Bytes from `begin` on of a tensor, in slices or not.
  void read(const TensorEntry &entry, uint64_t begin, std::span<uint8_t> bytes) const;
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
  std::span<const uint8_t> contentOf(uint32_t part) const {
    return part == 0 ? content : parts[part - 1].content;
  }

  std::shared_ptr<const MappedFile> mapping;
  std::vector<SafetensorsFile> parts;
  std::string_view header;
  std::span<const uint8_t> content;
  std::vector<TensorEntry> entries;
  std::unordered_map<std::string_view, size_t> byName;
  Metadata keyValues;
  std::string fileName;
};

/// The metadata of a part says of a tensor that is a slice of another one which: under
/// sliceKey(NAME) "BEGIN D0xD1", the first element and the shape of the whole.
std::string sliceKey(std::string_view name);
std::string sliceText(uint64_t begin, std::span<const int64_t> shape);

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
