#pragma once
// Elements from how a file stores them to how the model's input wants them.

#include "runtime/DType.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

/// Elements in the file: `count` of them, `step` elements apart, possibly byte-swapped.
struct ElementSource {
  const uint8_t *data = nullptr; // unaligned
  DType dtype = DType::u8;
  bool swapped = false;
  int64_t step = 1;
};

/// value * factor + offset, in double precision; exact and skipped when it is the
/// identity.
struct AffineMap {
  double factor = 1, offset = 0;
  bool identity() const { return factor == 1 && offset == 0; }
};

/// Writes `count` elements of type `target`. Returns -1, or the index of the first
/// element that has no such value: not a finite number, or for an integer target a
/// fraction or out of its range. Rounds to nearest, ties to even, once.
int64_t convertElements(const ElementSource &source, int64_t count, const AffineMap &map,
                        DType target, void *out);

/// The element as text, for messages.
std::string elementText(const ElementSource &source, int64_t index);

} // namespace sluice
