#pragma once
// Whether two specs train alike but for their formats.

#include "ir/TrainingSpec.h"

#include <string>

namespace sluice::cli {

/// The first key whose values train otherwise, such as "optimizer"; empty where there is
/// none. `precision`, `seed`, and what decides about memory alone do not count.
std::string trainingDifference(const TrainingSpec &a, const TrainingSpec &b);

/// Whether nothing is computed or stored in fewer bits than f32 has.
bool isSingle(const PrecisionSpec &precision);

} // namespace sluice::cli
