// IDX: two zero bytes, element type, number of dimensions, each dimension as a big-endian
// u32, then the elements, big-endian. http://yann.lecun.com/exdb/mnist

#include "runtime/MappedFile.h"
#include "runtime/data/Inflate.h"
#include "runtime/data/StoredArray.h"

#include <optional>
#include <span>

namespace sluice {

/// Largest IDX file taken, decompressed: 16 GiB.
static constexpr size_t maxIdxBytes = size_t(1) << 34;

static std::optional<DType> idxType(uint8_t code) {
  switch (code) {
  case 0x08:
    return DType::u8;
  case 0x09:
    return DType::i8;
  case 0x0b:
    return DType::i16;
  case 0x0c:
    return DType::i32;
  case 0x0d:
    return DType::f32;
  case 0x0e:
    return DType::f64;
  }
  return std::nullopt;
}

static Result<StoredArray> parseIdx(std::span<const uint8_t> bytes,
                                    std::shared_ptr<const void> owner,
                                    const std::string &path) {
  std::string name = "'" + path + "'";
  std::optional<DType> type;
  if (bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0)
    type = idxType(bytes[2]);
  if (!type)
    return Status::damaged(name + " is not an IDX file: its first bytes are not 0, 0 and "
                                  "a known element type");
  size_t dimensions = bytes[3], header = 4 + 4 * dimensions;
  if (dimensions == 0 || bytes.size() < header)
    return Status::damaged(name + " is too short for its IDX header of " +
                           std::to_string(dimensions) + " dimensions");
  StoredArray array;
  array.origin = path;
  array.owner = std::move(owner);
  array.dtype = *type;
  array.bigEndian = true;
  for (size_t d = 0; d < dimensions; ++d) {
    uint32_t size = 0;
    for (size_t b = 0; b < 4; ++b)
      size = size << 8 | bytes[4 + 4 * d + b];
    array.shape.push_back(size);
  }
  array.data = bytes.data() + header;
  int64_t expected = arrayBytes(array.shape, array.dtype);
  size_t found = bytes.size() - header;
  if (expected < 0 || static_cast<size_t>(expected) != found)
    return Status::damaged(name +
                           (expected >= 0 && found > static_cast<size_t>(expected)
                                ? " is longer than said"
                                : " is shorter than said") +
                           ": shape " + shapeName(array.shape) + " needs " +
                           (expected < 0 ? "more than 2^62" : std::to_string(expected)) +
                           " bytes of data, found " + std::to_string(found));
  return array;
}

Result<StoredArray> readIdx(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  if (!isGzip((*file)->bytes()))
    return parseIdx((*file)->bytes(), *file, path);
  auto bytes = inflateBytes((*file)->bytes(), Deflated::Gzip, maxIdxBytes, path);
  if (!bytes)
    return bytes.status();
  return parseIdx(**bytes, *bytes, path);
}

} // namespace sluice
