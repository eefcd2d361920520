#pragma once
// Finds the function of every kernel a plan names, for one feature level.

#include "kernels/Catalog.h"
#include "runtime/CodeImage.h"
#include "runtime/CpuLevel.h"
#include "runtime/Plan.h"

#include <functional>
#include <memory>
#include <vector>

namespace sluice {

/// Finds hand-written kernels; null when there is none of that name.
using KernelResolver = std::function<KernelFn(std::string_view, FeatureLevel)>;

struct KernelTable {
  FeatureLevel level = FeatureLevel::V3;
  std::vector<KernelFn> functions;       // by index of plan.kernels
  std::shared_ptr<const CodeImage> code; // keeps the generated ones mapped
};

/// Whether the plan has products of bf16, for which levels `amx` and `avx512-bf16` have
/// code.
bool multipliesBf16(const Plan &plan);

/// The best level this machine and the plan's code have in common, or the one asked for.
/// `amx` is the best for plans that have products of bf16, and not chosen for others.
/// Otherwise StatusCode::cannotRunHere with the features that are missing.
Result<FeatureLevel> chooseLevel(const Plan &plan,
                                 std::optional<FeatureLevel> forced = {});

/// Without a resolver the built-in catalogue is used, and every launch of a built-in
/// kernel is proved to stay inside its operands.
Result<KernelTable> bindKernels(const Plan &plan, FeatureLevel level,
                                const KernelResolver &resolver = {});

} // namespace sluice
