// NumPy's .npy: "\x93NUMPY", version, length of the header, a Python dictionary with
// descr, fortran_order and shape, the elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

#include "runtime/MappedFile.h"
#include "runtime/data/DataSpec.h"
#include "runtime/data/StoredArray.h"

#include <cstring>
#include <optional>
#include <string_view>

namespace sluice {
namespace {

struct Descr {
  std::string_view code;
  DType dtype;
};
constexpr Descr descrs[] = {{"f4", DType::f32}, {"f8", DType::f64}, {"f2", DType::f16},
                            {"i1", DType::i8},  {"u1", DType::u8},  {"i2", DType::i16},
                            {"u2", DType::u16}, {"i4", DType::i32}, {"u4", DType::u32},
                            {"i8", DType::i64}, {"u8", DType::u64}, {"b1", DType::i1}};

/// The text behind `'key':` in the dictionary, without leading blanks.
std::optional<std::string_view> valueOf(std::string_view header, std::string_view key) {
  for (char quote : {'\'', '"'}) {
    std::string quoted = quote + std::string(key) + quote;
    size_t at = header.find(quoted);
    if (at == std::string_view::npos)
      continue;
    at = header.find_first_not_of(" \t", at + quoted.size());
    if (at == std::string_view::npos || header[at] != ':')
      continue;
    at = header.find_first_not_of(" \t", at + 1);
    if (at != std::string_view::npos)
      return header.substr(at);
  }
  return std::nullopt;
}

bool parseShape(std::string_view text, std::vector<int64_t> &shape) {
  size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos)
    return false;
  text = text.substr(1, end - 1);
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    size_t first = item.find_first_not_of(" \t"), last = item.find_last_not_of(" \tL");
    if (first == std::string_view::npos)
      continue; // behind the last comma of (3,)
    std::optional<int64_t> size = parseInteger(item.substr(first, last + 1 - first));
    if (!size || *size < 0)
      return false;
    shape.push_back(*size);
  }
  return true;
}

Status parseHeader(std::string_view header, StoredArray &array, const std::string &name) {
  auto descr = valueOf(header, "descr"), order = valueOf(header, "fortran_order"),
       shape = valueOf(header, "shape");
  if (!descr || !order || !shape || descr->size() < 5)
    return Status::damaged(name + " has an npy header without descr, fortran_order or "
                                  "shape");
  if (order->substr(0, 5) != "False")
    return Status::refused(name + " is stored in Fortran order; save it with "
                                  "numpy.ascontiguousarray");
  char endian = (*descr)[1];
  std::string_view code = descr->substr(2, 2);
  const Descr *known = nullptr;
  for (const Descr &candidate : descrs)
    if (candidate.code == code && (*descr)[4] == (*descr)[0])
      known = &candidate;
  if (!known || std::string_view("<>|=").find(endian) == std::string_view::npos)
    return Status::refused(name + " has elements of type " +
                           std::string(descr->substr(0, descr->find(','))) +
                           ", expected plain numbers of 1 to 8 bytes");
  array.dtype = known->dtype;
  array.bigEndian = endian == '>';
  if (!parseShape(*shape, array.shape))
    return Status::damaged(name + " has a shape in its npy header that is not a tuple of "
                                  "sizes");
  return Status::success();
}

} // namespace

Result<StoredArray> parseNpy(const uint8_t *data, size_t size,
                             std::shared_ptr<const void> owner, std::string origin) {
  std::string name = "'" + origin + "'";
  if (size < 10 || std::memcmp(data, "\x93NUMPY", 6) != 0)
    return Status::damaged(name + " is not an npy file: it does not begin with "
                                  "\\x93NUMPY");
  int version = data[6];
  if (version < 1 || version > 3)
    return Status::refused(name + " has npy version " + std::to_string(version) +
                           ", expected 1 to 3");
  size_t prefix = version == 1 ? 10 : 12;
  size_t length = data[8] | size_t(data[9]) << 8;
  if (version > 1 && size >= 12)
    length |= size_t(data[10]) << 16 | size_t(data[11]) << 24;
  if (size < prefix || size - prefix < length)
    return Status::damaged(name + " ends in the middle of its npy header");

  StoredArray array;
  Status status =
      parseHeader({reinterpret_cast<const char *>(data) + prefix, length}, array, name);
  if (!status.ok())
    return status;
  size_t found = size - prefix - length;
  int64_t expected = arrayBytes(array.shape, array.dtype);
  if (expected < 0 || static_cast<size_t>(expected) != found)
    return Status::damaged(name +
                           (expected >= 0 && found > static_cast<size_t>(expected)
                                ? " is longer than said"
                                : " is shorter than said") +
                           ": shape " + shapeName(array.shape) + " of " +
                           std::string(dtypeName(array.dtype)) + " needs " +
                           (expected < 0 ? "more than 2^62" : std::to_string(expected)) +
                           " bytes of data, found " + std::to_string(found));
  array.data = data + prefix + length;
  array.owner = std::move(owner);
  array.origin = std::move(origin);
  return array;
}

Result<StoredArray> readNpy(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  auto bytes = (*file)->bytes();
  return parseNpy(bytes.data(), bytes.size(), *file, path);
}

} // namespace sluice
