#include "runtime/CpuLevel.h"

#include "kernels/MatrixUnit.h"

namespace sluice {

std::string_view levelName(FeatureLevel level) {
  return level == FeatureLevel::Amx    ? "amx"
         : level == FeatureLevel::Dots ? "avx512-bf16"
                                       : codeLevelName(level);
}

std::string_view codeLevelName(FeatureLevel level) {
  return level == FeatureLevel::V3 ? "x86-64-v3" : "x86-64-v4";
}

std::optional<FeatureLevel> levelByName(std::string_view name) {
  for (FeatureLevel level :
       {FeatureLevel::V3, FeatureLevel::V4, FeatureLevel::Dots, FeatureLevel::Amx})
    if (levelName(level) == name)
      return level;
  return std::nullopt;
}

// The builtin asks the operating system too: a feature whose registers are not saved does
// not count.
#define SLUICE_NEED(feature)                                                             \
  if (!__builtin_cpu_supports(feature))                                                  \
  missing.push_back(feature)

std::vector<std::string> missingFeatures(FeatureLevel level) {
  std::vector<std::string> missing;
#if defined(__x86_64__)
  SLUICE_NEED("avx");
  SLUICE_NEED("avx2");
  SLUICE_NEED("bmi");
  SLUICE_NEED("bmi2");
  SLUICE_NEED("f16c");
  SLUICE_NEED("fma");
  SLUICE_NEED("lzcnt");
  SLUICE_NEED("movbe");
  if (level != FeatureLevel::V3) {
    SLUICE_NEED("avx512f");
    SLUICE_NEED("avx512bw");
    SLUICE_NEED("avx512cd");
    SLUICE_NEED("avx512dq");
    SLUICE_NEED("avx512vl");
  }
  if (level == FeatureLevel::Dots || level == FeatureLevel::Amx)
    SLUICE_NEED("avx512bf16");
  if (level == FeatureLevel::Amx)
    for (std::string &feature : missingForTiles())
      missing.push_back(std::move(feature));
#else
  missing.push_back(std::string(levelName(level)));
#endif
  return missing;
}

#undef SLUICE_NEED

} // namespace sluice
