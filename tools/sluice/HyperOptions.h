#pragma once
// Hyper-parameters and frozen groups from the command line: --hyper, --freeze,
// --unfreeze.

#include "runtime/Session.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

struct HyperOptions {
  std::vector<std::string> hyper; // GROUP.NAME=VALUE, or clip_max=VALUE
  std::vector<std::string> freeze, unfreeze;
};

void addHyperOptions(CLI::App *app, HyperOptions &options);

/// After a checkpoint was loaded, whose changes these are made upon.
Status applyHyperOptions(const HyperOptions &options, Session &session);

} // namespace sluice::cli
