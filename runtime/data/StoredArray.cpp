#include "runtime/data/StoredArray.h"

#include "runtime/Safetensors.h"

namespace sluice {

int64_t arrayBytes(const std::vector<int64_t> &shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(dtypeSize(dtype));
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      return -1;
  return bytes <= (int64_t(1) << 62) ? bytes : -1;
}

std::string shapeName(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<StoredArray> readSafetensorsMember(const std::string &path,
                                          const std::string &member) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.status();
  auto owner = std::make_shared<const SafetensorsFile>(std::move(*file));
  const TensorEntry *entry = owner->find(member);
  if (!entry) {
    std::string names;
    for (const TensorEntry &tensor : owner->tensors()) {
      names += (names.empty() ? "'" : ", '") + tensor.name + "'";
      if (names.size() > 300) {
        names += ", ...";
        break;
      }
    }
    return Status::refused("'" + path + "' has no tensor '" + member + "'; it has " +
                           (names.empty() ? "none" : names));
  }
  StoredArray array;
  array.origin = path + "#" + member;
  array.dtype = entry->dtype;
  array.shape = entry->shape;
  array.data = owner->data(*entry).data();
  array.owner = std::move(owner);
  return array;
}

} // namespace sluice
