#pragma once
// The matrix unit of the processor, AMX: whether it may be used, and by what.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// What this machine lacks for AMX products of bf16; empty when they may run. Where
/// the processor has all, asks the operating system to let this process use its tiles
/// (larger signal frames are the price; asking again changes nothing).
std::vector<std::string> missingForTiles();

/// Whether a launch of a builtin kernel multiplies bf16 by bf16, so that level `amx`
/// computes it on tiles.
bool multipliesOnTiles(std::string_view kernel, const int64_t *params, size_t nparams);

} // namespace sluice
