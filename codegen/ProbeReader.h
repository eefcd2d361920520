#pragma once
// Reads what `sluice probe` has written, for `precision.policy`.

#include "ir/TrainingSpec.h"
#include "runtime/Status.h"

namespace sluice {

/// The file `policy.from`, if the policy has one and it is not read yet. Its tensors are
/// described in runtime/probe/ProbeFile.h.
Status readProbed(PolicySpec &policy);

} // namespace sluice
