// Regions that are checked run as CPU kernels.
#include "tests/codegen/RegionCase.h"

namespace sluice::test {

std::vector<HostTensor> checkRegion(RegionCase &region, double tolerance) {
  std::vector<HostTensor> results = RegionKernel(region).runEverywhere();
  expectMatches(region.expected(), results, tolerance);
  return results;
}

} // namespace sluice::test
