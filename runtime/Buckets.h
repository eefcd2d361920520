#pragma once
// Which bucket of a plan takes tensors of given shapes.

#include "runtime/Plan.h"

namespace sluice {

/// What a tensor smaller than its input is filled up with; nothing where that is refused.
std::optional<double> fillOf(const fbs::Port &port);

/// True if a tensor of this shape can be given to the input: the same shape, or one that
/// is smaller where the input is filled up. Dimension 0 of a batched input counts
/// samples, at least 1.
bool takes(const fbs::Port &port, std::span<const int64_t> shape);

/// The bucket with the smallest inputs that takes these shapes, one for each input of the
/// program. Refused naming the shapes and the buckets.
Result<uint32_t> chooseBucket(const Plan &plan, std::string_view program,
                              std::span<const std::span<const int64_t>> shapes);

/// All buckets, those with the smallest inputs first.
std::vector<uint32_t> bucketsBySize(const Plan &plan, std::string_view program);

/// "'T=64' (tokens [4, 64]), 'T=128' (tokens [4, 128])", for messages.
std::string bucketList(const Plan &plan, std::string_view program);

} // namespace sluice
