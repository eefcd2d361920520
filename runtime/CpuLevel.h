#pragma once
// Which machine code this processor can run.

#include "kernels/Catalog.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// "x86-64-v3" or "x86-64-v4".
std::string_view levelName(FeatureLevel level);
std::optional<FeatureLevel> levelByName(std::string_view name);

/// Names of the processor features the level needs and this machine lacks.
std::vector<std::string> missingFeatures(FeatureLevel level);

inline bool canRun(FeatureLevel level) { return missingFeatures(level).empty(); }

} // namespace sluice
