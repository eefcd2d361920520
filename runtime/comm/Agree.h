#pragma once
// Do all ranks have the same plan, checkpoint or spec? Asked before the first step, where
// the answer is a line; later it would be different sums.

#include "runtime/comm/Communicator.h"

#include <cstddef>

namespace sluice {

/// The longest hash that can be compared, in bytes.
constexpr size_t maxAgreedBytes = 64;

/// Success on all ranks when their hashes of `what` ("plan", "checkpoint") are equal;
/// else refused on all of them, naming those that differ from rank 0. The communicator
/// stays in order. Every rank has to call it.
Status agree(Communicator &comm, std::span<const std::byte> hash, std::string_view what);

} // namespace sluice
