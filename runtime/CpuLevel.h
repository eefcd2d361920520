#pragma once
// Which machine code this processor can run.

#include "kernels/Catalog.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// "x86-64-v3", "x86-64-v4", "avx512-bf16" or "amx".
std::string_view levelName(FeatureLevel level);
/// Of the level that a plan's generated code has: the last two run that of v4.
std::string_view codeLevelName(FeatureLevel level);
std::optional<FeatureLevel> levelByName(std::string_view name);

/// Names of the processor features the level needs and this machine lacks. For `amx` the
/// operating system is asked for its permission (kernels/MatrixUnit.h).
std::vector<std::string> missingFeatures(FeatureLevel level);

inline bool canRun(FeatureLevel level) { return missingFeatures(level).empty(); }

} // namespace sluice
