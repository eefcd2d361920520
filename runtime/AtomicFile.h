#pragma once
// Writes a file so that at every instant either the old one or the whole new one is
// there: temporary file in the same folder, fsync, rename, fsync of the folder.

#include "runtime/Status.h"

#include <cstddef>
#include <functional>
#include <string>

namespace sluice {

class AtomicFile {
public:
  /// Called before every system call that changes the disk, with its name; tests end the
  /// process here.
  using Observer = std::function<void(const char *)>;

  explicit AtomicFile(std::string path, Observer observer = {})
      : path(std::move(path)), observer(std::move(observer)) {}
  /// Without commit() the temporary file is removed and the old file stays.
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  Status open();
  Status write(const void *data, size_t size);
  /// Zeros up to a multiple of `alignment`.
  Status pad(size_t alignment);
  /// Overwrites bytes written before.
  Status overwrite(size_t offset, const void *data, size_t size);
  /// What is written reaches the disk, still under the temporary name.
  Status flush();
  Status commit();

  size_t bytesWritten() const { return position; }

private:
  Status problem(const char *what) const;
  void observe(const char *what) const {
    if (observer)
      observer(what);
  }

  std::string path, temporary;
  Observer observer;
  int file = -1;
  size_t position = 0;
};

} // namespace sluice
