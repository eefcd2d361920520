#pragma once
// Spatial attributes of convolutions and pools as the kernels take them.

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>

namespace sluice {

/// Writes a list of one to three spatial dimensions to the end of three.
inline void setSpatial(int64_t (&to)[3], llvm::ArrayRef<int64_t> from) {
  for (size_t i = 0; i < from.size(); ++i)
    to[3 - from.size() + i] = from[i];
}

} // namespace sluice
