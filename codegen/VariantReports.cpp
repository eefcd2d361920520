// What is said of the variants of a compilation, and of those that are over their budget.

#include "codegen/CompileReport.h"
#include "codegen/Variants.h"
#include "ir/plan/Plan.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

/// Refuses a plan over the budget: the smallest budget that can be met, and what fills
/// it. `byRule`: the spec rules out that more runs again.
Status checkBudget(const CompileReport &report, bool byRule) {
  if (!report.budgetBytes || report.arenaBytes <= *report.budgetBytes)
    return Status::success();
  std::string text = "the plan does not fit in the budget of " +
                     std::to_string(*report.budgetBytes) +
                     " bytes ('memory.budget'): the smallest that can be met is " +
                     std::to_string(report.arenaBytes) + " bytes, filled by";
  const char *separator = " ";
  for (auto &[category, bytes] : report.arena)
    if (bytes > 0 && category != "host") {
      text += separator + category + " " + std::to_string(bytes);
      separator = ", ";
    }
  text += "; the peak is " + report.peak;
  return Status::doesNotFit(text + (byRule
                                        ? "; 'memory.recompute: auto' needs less"
                                        : "; a smaller batch needs fewer activations"));
}

int64_t ownStateBytes(ModuleOp module) {
  int64_t bytes = 0;
  for (auto state : module.getOps<plan::StateOp>())
    if (!state.isOnHost())
      bytes += llvm::alignTo(state.getSize(), lineBytes);
  return bytes;
}

VariantReport describe(const PlannedVariant &variant) {
  VariantReport row;
  row.name = variant.name();
  row.bucket = variant.bucket;
  row.rung = variant.rung;
  row.memoryFraction = variant.memoryFraction;
  row.budgetBytes = variant.rungBudgetBytes;
  if (auto batch = ModuleOp(variant.module)->getAttrOfType<IntegerAttr>("graph.batch"))
    row.batch = batch.getInt();
  row.arenaBytes = variant.report.arenaBytes;
  row.stepBytes = variant.report.stepBytes;
  row.hostBytes = variant.report.hostStateBytes + variant.report.hostStepBytes;
  row.stepUs = variant.report.stepUs;
  row.stepUsBound = variant.report.stepUsBound;
  row.gap = variant.report.gap;
  for (auto program : ModuleOp(variant.module).getOps<plan::ProgramOp>())
    row.programs.push_back({program.getEntry().str(), program.getStepBytes()});
  return row;
}

/// "with the shapes 'T=64' ", "on rung 2 of 'memory.ladder' (0.64) ".
std::string variantPrefix(const PlannedVariant &variant) {
  std::string prefix;
  if (!variant.bucketName.empty())
    prefix = "with the shapes '" + variant.bucketName + "' ";
  if (variant.rung > 0)
    prefix += llvm::formatv("on rung {0} of 'memory.ladder' ({1:F3}) ", variant.rung,
                            variant.memoryFraction)
                  .str();
  return prefix;
}

} // namespace

Status reportVariants(MutableArrayRef<PlannedVariant> variants,
                      const CompileOptions &options, CompileReport &report) {
  bool byRule = options.spec.recompute == "none" || options.spec.hasFixedRecompute();
  int64_t stateBytes = stateBytesOf(variants);
  const PlannedVariant *largest = nullptr;
  llvm::StringSet<> kernels;
  std::vector<VariantReport> rows;
  Status fit = Status::success();
  double neededBytes = 0; // of the budget of all, by what does not fit
  for (PlannedVariant &variant : variants) {
    int64_t otherBytes =
        variants.size() > 1 ? stateBytes - ownStateBytes(variant.module) : 0;
    variant.report.budgetBytes = variant.rungBudgetBytes;
    reportPlan(variant.module, variant.choice ? &*variant.choice : nullptr, otherBytes,
               variant.report);
    // Of those that do not fit the one that needs most is named: its bytes are enough.
    if (Status fits = checkBudget(variant.report, byRule); !fits.ok()) {
      double wholeBytes = double(variant.report.arenaBytes) / variant.memoryFraction;
      if (wholeBytes > neededBytes)
        fit = {fits.code, variantPrefix(variant) + fits.message};
      neededBytes = std::max(neededBytes, wholeBytes);
    }
    if (!largest || variant.report.arenaBytes > largest->report.arenaBytes)
      largest = &variant;
    for (auto kernel : ModuleOp(variant.module).getOps<plan::KernelOp>())
      kernels.insert(kernel.getSymName());
    rows.push_back(describe(variant));
  }
  if (!fit.ok()) {
    report.variants = std::move(rows);
    return fit;
  }
  report = largest->report;
  report.kernels = kernels.size();
  report.notes = joinedNotes(variants);
  report.decisions = joinedDecisions(variants);
  report.variants = std::move(rows);
  return Status::success();
}

} // namespace sluice
