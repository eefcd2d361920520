#include "codegen/Compile.h"

#include "codegen/CompileReport.h"
#include "codegen/Ladder.h"
#include "codegen/PolicySearch.h"
#include "codegen/RegionEmitter.h"
#include "codegen/RunStage.h"
#include "codegen/VariantPlans.h"
#include "codegen/WritePlan.h"
#include "passes/LaunchCosts.h"
#include "passes/Pipeline.h"
#include "passes/StateSymbols.h"

#include "ir/plan/Plan.h"

#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <chrono>
#include <thread>

using namespace mlir;

namespace sluice {
namespace {

/// Machine code of every generated kernel.
Status generateCode(ArrayRef<PlannedVariant> variants, const CompileOptions &options,
                    PlanCode &code) {
  ModuleOp first = variants.front().module;
  DiagnosticText diagnostics(first.getContext());
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(first.getLoc());
  std::vector<plan::KernelOp> all;
  for (const PlannedVariant &variant : variants)
    llvm::append_range(all, ModuleOp(variant.module).getOps<plan::KernelOp>());
  bool any = false;
  for (plan::KernelOp kernel : all) {
    if (!kernel.isGenerated() || code.symbols.contains(kernel.getSymName().str()))
      continue;
    auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
    FailureOr<GeneratedKernel> generated = emitRegion(region, *kernels);
    if (failed(generated))
      return Status::refused(diagnostics.text);
    if (generated->scratchBytes != int64_t(kernel.getScratch()))
      return Status::refused("kernel '" + generated->symbol +
                             "' needs another scratch than planned");
    code.symbols[kernel.getSymName().str()] = generated->symbol;
    any = true;
  }
  if (!any)
    return Status::success();
  KernelCompilerOptions compilerOptions;
  compilerOptions.levels = options.levels;
  FailureOr<std::vector<KernelImage>> images = compileKernels(*kernels, compilerOptions);
  if (failed(images))
    return Status::refused(diagnostics.text);
  code.images = std::move(*images);
  return Status::success();
}

TrainingSpec withThreads(TrainingSpec spec) {
  if (spec.threads <= 0)
    spec.threads = std::max(1u, std::thread::hardware_concurrency());
  return spec;
}

/// The stages up to regions: what all plans of a bucket have in common.
Status buildRegions(ModuleOp module, const CompileOptions &options) {
  if (options.stopAfter == CompileStage::Model)
    return Status::success();
  if (options.redZoneBytes > 0)
    module->setAttr("plan.red_zone",
                    Builder(module).getI64IntegerAttr(options.redZoneBytes));
  setDevice(module, options.device);
  // The passes refer to the spec.
  TrainingSpec spec = withThreads(options.spec);
  Status status =
      runStage(module, [&](OpPassManager &passes) { buildTrainPipeline(passes, spec); });
  if (!status.ok() || options.stopAfter == CompileStage::Train)
    return status;
  return runStage(
      module, [&](OpPassManager &passes) { buildRegionPipeline(passes, options.fuse); });
}

/// A budget is for the state of all variants: what others add to it is not theirs to use.
Status shrinkBudgets(MutableArrayRef<PlannedVariant> variants,
                     const CompileOptions &options) {
  bool oneBucket = variants.back().bucket == 0;
  if (oneBucket || (!options.spec.budgetBytes && options.spec.ladder.empty()))
    return Status::success();
  std::vector<OwningOpRef<ModuleOp>> clones;
  std::vector<PlannedVariant> plain;
  std::vector<int64_t> ownBytes;
  for (const PlannedVariant &variant : variants) {
    if (variant.rung > 0)
      break; // has the state of rung 0
    clones.push_back(ModuleOp(variant.module).clone());
    PlannedVariant &copy = plain.emplace_back();
    copy.bucketName = variant.bucketName;
    copy.module = *clones.back();
    Status status = runStage(copy.module, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, /*chain=*/options.fuse);
    });
    if (!status.ok())
      return status;
    ownBytes.push_back(stateBytesOf(copy));
  }
  if (Status status = mergeVariants(plain); !status.ok())
    return status;
  for (PlannedVariant &variant : variants)
    if (variant.budgetBytes)
      *variant.budgetBytes -= stateBytesOf(plain) - ownBytes[variant.bucket];
  return Status::success();
}

/// What is not built yet for plans of several ranks. All must send the same messages,
/// which follow from predicted times: those of other shapes or rungs are others.
Status checkRanks(size_t buckets, const TrainingSpec &spec) {
  if (spec.ranks <= 1)
    return Status::success();
  std::string ranks = "with " + std::to_string(spec.ranks) + " ranks ";
  if (buckets > 1)
    return Status::refused(ranks + "several shapes are not yet supported; give 'shapes' "
                                   "one entry");
  if (!spec.ladder.empty())
    return Status::refused(ranks + "'memory.ladder' is not yet supported");
  if (spec.offload != "none")
    return Status::refused(ranks + "'memory.offload: " + spec.offload +
                           "' is not yet supported, only none");
  return Status::success();
}

/// One for each bucket; their modules hold regions.
std::vector<PlannedVariant> variantsOf(ArrayRef<CompileBucket> buckets,
                                       const CompileOptions &options) {
  std::vector<PlannedVariant> variants;
  for (auto [i, bucket] : llvm::enumerate(buckets)) {
    PlannedVariant &variant = variants.emplace_back();
    variant.bucketName = buckets.size() > 1 ? bucket.name : "";
    variant.bucket = i;
    variant.module = bucket.module;
    variant.budgetBytes = variant.rungBudgetBytes = options.spec.budgetBytes;
  }
  return variants;
}

/// With what the policy of precision needs read, and decided as far as it is not a pass.
Status compilePrepared(ArrayRef<CompileBucket> buckets, const CompileOptions &options,
                       CompileReport &report) {
  auto start = std::chrono::steady_clock::now();
  Status status = checkRanks(buckets.size(), options.spec);
  if (status.ok())
    status = checkSameState(buckets);
  for (const CompileBucket &bucket : buckets)
    if (status.ok())
      status = buildRegions(bucket.module, options);
  if (!status.ok() || options.stopAfter <= CompileStage::Regions)
    return status;
  std::vector<PlannedVariant> variants = variantsOf(buckets, options);
  std::vector<OwningOpRef<ModuleOp>> rungs;
  if (status = addRungs(variants, options, rungs); !status.ok())
    return status;
  status = shrinkBudgets(variants, options);
  if (status.ok())
    status = planVariants(variants, options);
  if (!status.ok() || options.stopAfter == CompileStage::Decide)
    return status;
  if (status = mergeVariants(variants); !status.ok())
    return status;
  if (status = reportVariants(variants, options, report); !status.ok())
    return status;
  if (options.stopAfter == CompileStage::Plan)
    return Status::success();

  PlanCode code;
  if (status = generateCode(variants, options, code); !status.ok())
    return status;
  PlanOrigin origin{"sluice " SLUICE_VERSION,
                    options.spec.text,
                    report.notes,
                    report.decisions,
                    options.tensorNodes,
                    options.spec.budgetBytes.value_or(0)};
  status = writePlan(variants, code, origin, options.outPath);
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  report.compileSeconds = taken.count();
  return status;
}

} // namespace

std::optional<CompileStage> compileStageNamed(StringRef name) {
  constexpr StringLiteral names[] = {"model",  "train", "regions",
                                     "decide", "plan",  "code"};
  for (auto [i, known] : llvm::enumerate(names))
    if (name == known)
      return static_cast<CompileStage>(i);
  return std::nullopt;
}

Status compileBuckets(ArrayRef<CompileBucket> buckets, const CompileOptions &given,
                      CompileReport &report) {
  CompileOptions options = given;
  if (Status status = preparePolicy(options.spec); !status.ok())
    return status;
  std::string note;
  if (options.stopAfter > CompileStage::Model)
    if (Status status = searchPolicy(buckets, options, compilePrepared, note);
        !status.ok())
      return status;
  if (!note.empty())
    for (const CompileBucket &bucket : buckets)
      sluice::report(bucket.module, note);
  return compilePrepared(buckets, options, report);
}

Status compileModule(ModuleOp module, const CompileOptions &options,
                     CompileReport &report) {
  return compileBuckets(CompileBucket{"", module}, options, report);
}

} // namespace sluice
