#pragma once
// A text as token ids, for windows over it.

#include "runtime/data/StoredArray.h"

#include <string>

namespace sluice {

enum class Vocabulary {
  Bytes, ///< distinct bytes of the text in rising order are ids 0, 1, ...
  Chars, ///< the same with code points of UTF-8
  Raw,   ///< the byte itself is the id
};

/// All ids of the text, in one dimension. The vocabulary is that of `vocabularyPath` (the
/// text itself when empty); what the text has beyond it is refused.
Result<StoredArray> readText(const std::string &path, Vocabulary vocabulary,
                             const std::string &vocabularyPath);

/// Ids as they are: a file of nothing but u16, i32 or u32, little-endian.
Result<StoredArray> readTokens(const std::string &path, DType dtype);

} // namespace sluice
