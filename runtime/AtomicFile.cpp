#include "runtime/AtomicFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice {

// Large writes are cut so that an observer sees a file that is only half there.
constexpr size_t pieceBytes = 1 << 20;

AtomicFile::~AtomicFile() {
  if (file < 0)
    return;
  ::close(file);
  ::unlink(temporary.c_str());
}

Status AtomicFile::problem(const char *what) const {
  std::string reason = std::strerror(errno);
  return Status::refused(std::string("cannot ") + what + " '" + path + "': " + reason +
                         "; the previous file, if any, is untouched");
}

Status AtomicFile::open() {
  struct stat there;
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return Status::refused("'" + path +
                           "' is no regular file, and would be replaced by one; name "
                           "another path");
  temporary = path + ".tmp-" + std::to_string(getpid());
  observe("open");
  file = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return file < 0 ? problem("create") : Status::success();
}

Status AtomicFile::write(const void *data, size_t size) {
  Status status = overwrite(position, data, size);
  if (status.ok())
    position += size;
  return status;
}

Status AtomicFile::pad(size_t alignment) {
  static const char zeros[4096] = {};
  size_t missing = (alignment - position % alignment) % alignment;
  while (missing > 0) {
    size_t now = std::min(missing, sizeof zeros);
    if (Status status = write(zeros, now); !status.ok())
      return status;
    missing -= now;
  }
  return Status::success();
}

Status AtomicFile::overwrite(size_t offset, const void *data, size_t size) {
  const char *from = static_cast<const char *>(data);
  while (size > 0) {
    observe("write");
    ssize_t written =
        ::pwrite(file, from, std::min(size, pieceBytes), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return problem("write");
    from += written;
    offset += static_cast<size_t>(written);
    size -= static_cast<size_t>(written);
  }
  return Status::success();
}

static void syncFolder(const std::string &path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    return;
  // Not every file system can sync a folder; the rename is atomic all the same.
  (void)::fsync(handle);
  ::close(handle);
}

Status AtomicFile::flush() {
  observe("fsync");
  return ::fsync(file) == 0 ? Status::success() : problem("write");
}

Status AtomicFile::commit() {
  if (Status status = flush(); !status.ok())
    return status;
  observe("rename");
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return problem("replace");
  ::close(file);
  file = -1;
  observe("sync folder");
  syncFolder(path);
  return Status::success();
}

} // namespace sluice
