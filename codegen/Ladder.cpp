#include "codegen/Ladder.h"

#include "codegen/RunStage.h"
#include "ir/plan/Plan.h"
#include "passes/Pipeline.h"

using namespace mlir;

namespace sluice {
namespace {

/// State and the largest step of plans that keep everything.
Status unconstrainedBytes(ArrayRef<PlannedVariant> variants,
                          const CompileOptions &options, int64_t &bytes) {
  std::vector<OwningOpRef<ModuleOp>> modules;
  std::vector<PlannedVariant> plain;
  int64_t stepBytes = 0;
  for (const PlannedVariant &variant : variants) {
    modules.push_back(ModuleOp(variant.module).clone());
    PlannedVariant &copy = plain.emplace_back();
    copy.bucketName = variant.bucketName;
    copy.module = *modules.back();
    Status status = runStage(copy.module, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, /*chain=*/options.fuse);
    });
    if (!status.ok())
      return status;
    for (auto program : copy.module.getOps<plan::ProgramOp>())
      stepBytes = std::max<int64_t>(stepBytes, program.getStepBytes());
  }
  if (Status status = mergeVariants(plain); !status.ok())
    return status;
  bytes = stateBytesOf(plain) + stepBytes;
  return Status::success();
}

} // namespace

Status addRungs(std::vector<PlannedVariant> &variants, const CompileOptions &options,
                std::vector<OwningOpRef<ModuleOp>> &clones) {
  const std::vector<double> &ladder = options.spec.ladder;
  if (ladder.empty())
    return Status::success();
  int64_t whole = options.spec.budgetBytes.value_or(0);
  if (whole == 0)
    if (Status status = unconstrainedBytes(variants, options, whole); !status.ok())
      return status;
  size_t buckets = variants.size();
  for (size_t rung = 0; rung < ladder.size(); ++rung)
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      if (rung > 0) {
        clones.push_back(ModuleOp(variants[bucket].module).clone());
        PlannedVariant variant;
        variant.bucketName = variants[bucket].bucketName;
        variant.bucket = variants[bucket].bucket;
        variant.module = *clones.back();
        variants.push_back(std::move(variant));
      }
      PlannedVariant &variant = variants[rung * buckets + bucket];
      variant.rung = rung;
      variant.memoryFraction = ladder[rung];
      if (options.spec.budgetBytes || ladder[rung] < 1)
        variant.budgetBytes =
            static_cast<int64_t>(static_cast<double>(whole) * ladder[rung]);
      variant.rungBudgetBytes = variant.budgetBytes;
    }
  return Status::success();
}

} // namespace sluice
