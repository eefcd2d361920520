#pragma once
// What a reader finds in a file: elements as they are stored there, mapped where
// possible.

#include "runtime/DType.h"
#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

struct StoredArray {
  std::string origin;                // the file, with the member, for messages
  std::shared_ptr<const void> owner; // keeps the bytes alive
  const uint8_t *data = nullptr;     // row-major, unaligned in general
  DType dtype = DType::u8;
  bool bigEndian = false;
  std::vector<int64_t> shape;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    return count;
  }
};

/// Bytes of an array of this shape, or -1 when a dimension is negative or the product
/// overflows.
int64_t arrayBytes(const std::vector<int64_t> &shape, DType dtype);

/// "[60000, 28, 28]".
std::string shapeName(const std::vector<int64_t> &shape);

/// A reader of IDX files (LeCun's MNIST format), plain or gzipped.
Result<StoredArray> readIdx(const std::string &path);
/// NumPy's .npy, versions 1 to 3, C order.
Result<StoredArray> readNpy(const std::string &path);
/// An array of a .npz, stored or deflated; the name with or without ".npy".
Result<StoredArray> readNpz(const std::string &path, const std::string &member);
Result<StoredArray> readSafetensorsMember(const std::string &path,
                                          const std::string &member);

/// Parses the bytes of a .npy; they are kept alive by `owner`.
Result<StoredArray> parseNpy(const uint8_t *data, size_t size,
                             std::shared_ptr<const void> owner, std::string origin);

} // namespace sluice
