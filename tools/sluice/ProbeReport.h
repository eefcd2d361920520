#pragma once
// What a probe has found, for people and programs.

#include "runtime/Safetensors.h"
#include "runtime/probe/GroupCoupling.h"
#include "runtime/probe/Importance.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// Per parameter: importance and the increase by format, with intervals of 95%; null for
/// formats in which a weight has no finite value. `hasError`: false where the kind says
/// nothing of its error, and intervals are left out.
Json probeRows(const Importance &importance, bool hasError);

/// How far the groups of parameters depend on each other.
void reportCoupling(const GroupCoupling &coupling, Console &console);

std::string probeTable(const Importance &importance, bool hasError);

} // namespace sluice::cli
