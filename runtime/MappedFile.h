#pragma once
// A file mapped read-only into memory.

#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sluice {

class MappedFile {
public:
  /// Refused when missing, unreadable or not a regular file; an empty file gives an empty
  /// span.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string &path);

  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const uint8_t> bytes() const { return {data, size}; }
  const std::string &path() const { return filePath; }

private:
  MappedFile() = default;

  const uint8_t *data = nullptr;
  size_t size = 0;
  std::string filePath;
};

} // namespace sluice
