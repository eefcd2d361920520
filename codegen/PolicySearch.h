#pragma once
// `precision.policy` beside a memory budget: what parameters take is no longer there for
// activations, so fewer bits for the one and running again of the other are chosen
// together.

#include "codegen/Compile.h"

namespace sluice {

/// Reads the probe of the policy and checks that something bounds it.
Status preparePolicy(TrainingSpec &spec);

using CompileFunction = llvm::function_ref<Status(
    llvm::ArrayRef<CompileBucket>, const CompileOptions &, CompileReport &)>;

/// Sets the policy's budget, where there is a memory budget too: the most bytes (so the
/// least expected rise of the loss) with which the plan fits and is predicted to run at
/// `policy.speed` of what it would without a memory budget; if none is, the fastest that
/// fits. Budgets are those of the policy's walk, falling, up to its own; as they fall, so
/// do the times, and few are tried. `note` is for the report. Imported modules are not
/// changed.
Status searchPolicy(llvm::ArrayRef<CompileBucket> buckets, CompileOptions &options,
                    CompileFunction compile, std::string &note);

} // namespace sluice
