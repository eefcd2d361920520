#include "runtime/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice {

static Status cannotRead(const std::string &path, const char *why) {
  return Status::refused("cannot read '" + path + "': " + why);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path) {
  // Non-blocking, or a FIFO would hang here before it can be refused.
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return cannotRead(path, std::strerror(errno));
  struct stat info = {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(file);
    return cannotRead(path, "not a regular file");
  }
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->filePath = path;
  mapped->size = static_cast<size_t>(info.st_size);
  if (mapped->size > 0) {
    void *address = mmap(nullptr, mapped->size, PROT_READ, MAP_PRIVATE, file, 0);
    int error = errno;
    ::close(file);
    if (address == MAP_FAILED) {
      mapped->size = 0;
      return cannotRead(path, std::strerror(error));
    }
    mapped->data = static_cast<const uint8_t *>(address);
  } else {
    ::close(file);
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (size > 0)
    munmap(const_cast<uint8_t *>(data), size);
}

} // namespace sluice
