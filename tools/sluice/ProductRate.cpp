#include "tools/sluice/ProductRate.h"

#include "kernels/Params.h"
#include "runtime/CpuLevel.h"
#include "runtime/Trace.h"

#include <algorithm>
#include <vector>

namespace sluice::cli {
namespace {

FeatureLevel bestLevel() {
  for (FeatureLevel level : {FeatureLevel::Amx, FeatureLevel::Dots, FeatureLevel::V4})
    if (canRun(level))
      return level;
  return FeatureLevel::V3;
}

/// One product, large enough that packing is little of it.
class TimedProduct {
public:
  TimedProduct(int64_t type, FeatureLevel level) : level(level) {
    p.m = 288, p.n = 512, p.k = 1024;
    p.aRow = p.k, p.bRow = p.n, p.cRow = p.n;
    p.aType = p.bType = p.cType = type;
    p.unitRows = p.m, p.unitCols = 0;
    // 1.0 in either format, where the halves of an f32 are two numbers.
    uint32_t one = type == format::kF32 ? 0x3f800000 : 0x3f803f80;
    size_t words = static_cast<size_t>(formatBytes(type)) / 2;
    a.assign(static_cast<size_t>(p.m * p.k) * words / 2 + 1, one);
    b.assign(static_cast<size_t>(p.k * p.n) * words / 2 + 1, one);
    c.resize(static_cast<size_t>(p.m * p.n));
    workspace.resize(static_cast<size_t>(gemmWorkerBytes(p)) / 4 + 16);
  }

  double microseconds() {
    std::vector<int64_t> params = packParams(p);
    auto aligned = (reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64;
    void *buffers[] = {a.data(), b.data(), c.data(), reinterpret_cast<void *>(aligned)};
    KernelFn kernel = findBuiltinKernel("gemm_f32", level);
    uint64_t begin = nowNs();
    kernel(buffers, params.data(), 0, gemmUnits(p), 0);
    return static_cast<double>(nowNs() - begin) / 1e3;
  }

private:
  FeatureLevel level;
  GemmParams p;
  std::vector<uint32_t> a, b, c, workspace;
};

} // namespace

double bf16SpeedUp() {
  FeatureLevel level = bestLevel();
  TimedProduct wide(format::kF32, level), narrow(format::kBf16, level);
  double wideUs = wide.microseconds(), narrowUs = narrow.microseconds();
  constexpr int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    wideUs = std::min(wideUs, wide.microseconds());
    narrowUs = std::min(narrowUs, narrow.microseconds());
  }
  return level <= FeatureLevel::V4 ? 1 : wideUs / narrowUs;
}

} // namespace sluice::cli
