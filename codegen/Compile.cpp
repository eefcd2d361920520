#include "codegen/Compile.h"

#include "codegen/BudgetSearch.h"
#include "codegen/CompileReport.h"
#include "codegen/OffloadSearch.h"
#include "codegen/RegionEmitter.h"
#include "codegen/RunStage.h"
#include "codegen/WritePlan.h"
#include "passes/LaunchCosts.h"
#include "passes/Pipeline.h"
#include "passes/TensorFacts.h"

#include "ir/plan/Plan.h"

#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <chrono>
#include <thread>

using namespace mlir;

namespace sluice {
namespace {

/// Machine code of every generated kernel.
Status generateCode(ModuleOp module, const CompileOptions &options, PlanCode &code) {
  DiagnosticText diagnostics(module.getContext());
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
  bool any = false;
  for (auto kernel : module.getOps<plan::KernelOp>()) {
    if (!kernel.isGenerated())
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

/// What becomes of each value, where no search has said it.
Status describe(ModuleOp module, const TrainingSpec &spec) {
  func::FuncOp entry = trainingEntry(module);
  if (!entry || entry->hasAttr(tensorFactsAttr))
    return Status::success();
  std::string wrong = describeTensors(entry, spec.keep);
  return wrong.empty() ? Status::success() : Status::refused(wrong);
}

TrainingSpec withThreads(TrainingSpec spec) {
  if (spec.threads <= 0)
    spec.threads = std::max(1u, std::thread::hardware_concurrency());
  return spec;
}

/// The stages up to the plan.
Status buildPlan(ModuleOp module, const CompileOptions &options,
                 std::optional<BudgetChoice> &choice) {
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
  status = runStage(
      module, [&](OpPassManager &passes) { buildRegionPipeline(passes, options.fuse); });
  if (!status.ok() || options.stopAfter == CompileStage::Regions)
    return status;
  if (spec.offload == "host" || (spec.offload == "auto" && spec.budgetBytes))
    status = tradeMemoryAndLink(module, options, nullptr, choice.emplace());
  else if (spec.hasFixedRecompute() || (spec.budgetBytes && spec.recompute != "none"))
    status = tradeMemory(module, options, choice.emplace());
  if (status.ok())
    status = describe(module, spec);
  if (!status.ok() || options.stopAfter == CompileStage::Decide)
    return status;
  return runStage(module, [&](OpPassManager &passes) {
    buildPlanPipeline(passes, /*chain=*/options.fuse,
                      choice ? &choice->offload : nullptr);
  });
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

Status compileModule(ModuleOp module, const CompileOptions &options,
                     CompileReport &report) {
  auto start = std::chrono::steady_clock::now();
  std::optional<BudgetChoice> choice;
  Status status = buildPlan(module, options, choice);
  if (!status.ok() || options.stopAfter < CompileStage::Plan)
    return status;
  report.budgetBytes = options.spec.budgetBytes;
  reportPlan(module, choice ? &*choice : nullptr, report);
  bool byRule = options.spec.recompute == "none" || options.spec.hasFixedRecompute();
  if (Status fits = checkBudget(report, byRule); !fits.ok())
    return fits;
  if (options.stopAfter == CompileStage::Plan)
    return Status::success();

  PlanCode code;
  if (status = generateCode(module, options, code); !status.ok())
    return status;
  PlanOrigin origin{"sluice " SLUICE_VERSION, options.spec.text, report.decisions,
                    options.spec.budgetBytes.value_or(0)};
  status = writePlan(module, code, origin, options.outPath);
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  report.compileSeconds = taken.count();
  return status;
}

} // namespace sluice
