#pragma once
// Bounds that keep a hostile or damaged file from exhausting the machine.

#include <cstdint>

namespace sluice::frontend {

inline constexpr int64_t maxIrVersion = 13;
inline constexpr int64_t maxOpset = 23;
inline constexpr int64_t maxElements = int64_t(1) << 36; // of one tensor
inline constexpr int64_t maxRank = 32;
inline constexpr int64_t maxOperations = 2'000'000; // after unrolling and inlining
inline constexpr int maxNesting = 32;               // subgraphs and functions
inline constexpr int64_t maxTripCount = 100'000;    // of a loop that is unrolled

// Constant folding: a result up to `foldSmall` elements is always computed; up to
// `foldLarge` only where it has no more elements than the operands.
inline constexpr int64_t foldSmall = 1 << 16;
inline constexpr int64_t foldRepeated = 1 << 10; // of a broadcast, which only repeats
inline constexpr int64_t foldLarge = 1 << 22;
inline constexpr int64_t foldTotal = int64_t(1) << 28; // elements computed by one import
inline constexpr double foldFlops = 1e8;               // of one operation

/// Tensors of at least this many bytes become resources and are not copied.
inline constexpr int64_t resourceBytes = 1024;

} // namespace sluice::frontend
