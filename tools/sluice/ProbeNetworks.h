#pragma once
// Small networks whose training steps `sluice calibrate` measures: among them every kind
// of kernel that steps spend their time in, in several sizes.

#include <string>
#include <vector>

namespace sluice::cli {

struct ProbeNetwork {
  std::string name;
  std::string text; ///< a module with @forward, as an import gives it
};

std::vector<ProbeNetwork> probeNetworks();

} // namespace sluice::cli
