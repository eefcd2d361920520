#pragma once
// Instructions for products of bf16: whether the matrix unit, AMX, may be used, and which
// launches gain from them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// What this machine lacks for AMX products of bf16; empty when they may run. Where
/// the processor has all, asks the operating system to let this process use its tiles
/// (larger signal frames are the price; asking again changes nothing).
std::vector<std::string> missingForTiles();

/// Whether a launch of a builtin kernel multiplies bf16 by bf16, so that levels `amx` or
/// `avx512-bf16` have code of their own for it.
bool multipliesBf16(std::string_view kernel, const int64_t *params, size_t nparams);

} // namespace sluice
