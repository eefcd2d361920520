#pragma once
// From regions to plans, for all variants of a compilation together: their state lies at
// the same place.

#include "codegen/Variants.h"

namespace sluice {

/// Plans every variant under its own budget; the modules hold regions. Where state may
/// lie in the host's memory, the first variant says which; if another does not fit then,
/// the one that misses most says it for all.
Status planVariants(llvm::MutableArrayRef<PlannedVariant> variants,
                    const CompileOptions &options);

} // namespace sluice
