#pragma once
// Machine code of a plan: an ELF64 shared image that needs nothing from outside. Mapped
// without dlopen, so that a plan can neither pull in libraries nor run initialisers.

#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace sluice {

class CodeImage {
public:
  /// Refuses an image with relocations, undefined symbols, needed libraries,
  /// initialisers, thread-local storage or segments outside the bytes given. `name` is
  /// for messages. Code becomes read+execute, all else read-only.
  static Result<std::shared_ptr<const CodeImage>> load(std::span<const uint8_t> file,
                                                       const std::string &name);
  ~CodeImage();
  CodeImage(const CodeImage &) = delete;
  CodeImage &operator=(const CodeImage &) = delete;

  /// Address of the function, or null.
  void *symbol(std::string_view name) const;

private:
  friend class ImageLoader;
  CodeImage() = default;

  uint8_t *base = nullptr; // of virtual address 0
  uint64_t size = 0;
  std::unordered_map<std::string_view, uint64_t> functions; // names lie in the image
};

} // namespace sluice
