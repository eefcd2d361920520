#include "codegen/VariantPlans.h"

#include "codegen/OffloadSearch.h"
#include "codegen/RunStage.h"
#include "ir/plan/Plan.h"
#include "passes/Pipeline.h"
#include "passes/TensorFacts.h"

#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;

namespace sluice {
namespace {

/// What becomes of each value, where no search has said it.
Status describeValues(ModuleOp module, const TrainingSpec &spec) {
  func::FuncOp entry = trainingEntry(module);
  if (!entry || entry->hasAttr(tensorFactsAttr))
    return Status::success();
  std::string wrong = describeTensors(entry, spec.keep);
  return wrong.empty() ? Status::success() : Status::refused(wrong);
}

/// Puts a copy back in the place of what became of it.
void restore(ModuleOp module, ModuleOp copy) {
  OwningOpRef<ModuleOp> again = copy.clone();
  module->setAttrs(again.get()->getAttrDictionary());
  module.getBodyRegion().takeBody(again->getBodyRegion());
}

class VariantPlanner {
public:
  VariantPlanner(MutableArrayRef<PlannedVariant> variants, const CompileOptions &options)
      : variants(variants), options(options), overBytes(variants.size()) {}

  Status run() {
    isShared = variants.size() > 1 && options.spec.offload != "none";
    std::vector<OwningOpRef<ModuleOp>> regions;
    if (isShared)
      for (PlannedVariant &variant : variants)
        regions.push_back(variant.module.clone());
    std::set<size_t> tried;
    for (size_t decider = 0;;) {
      if (Status status = planAll(decider); !status.ok())
        return status;
      tried.insert(decider);
      size_t worst = llvm::max_element(overBytes) - overBytes.begin();
      if (!isShared || overBytes[worst] <= 0 || tried.count(worst)) {
        explain(decider);
        return Status::success();
      }
      decider = worst;
      for (auto [variant, copy] : llvm::zip_equal(variants, regions)) {
        restore(variant.module, *copy);
        variant.choice.reset();
      }
    }
  }

private:
  /// Where the state lies is the choice of one of them.
  Status planAll(size_t decider) {
    if (Status status = plan(decider, nullptr); !status.ok())
      return status;
    for (size_t i = 0; i < variants.size(); ++i)
      if (i != decider)
        if (Status status = plan(i, &variants[decider]); !status.ok())
          return status;
    return Status::success();
  }

  Status plan(size_t index, const PlannedVariant *decider) {
    PlannedVariant &variant = variants[index];
    if (Status status = trade(variant, decider); !status.ok())
      return status;
    bool stops = options.stopAfter == CompileStage::Decide;
    if (stops && !isShared)
      return Status::success();
    OwningOpRef<ModuleOp> clone;
    if (stops)
      clone = variant.module.clone();
    PlannedVariant planned;
    planned.module = stops ? *clone : variant.module;
    Status status = runStage(planned.module, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, /*chain=*/options.fuse,
                        variant.choice ? &variant.choice->offload : nullptr);
    });
    int64_t step = 0;
    for (auto program : planned.module.getOps<plan::ProgramOp>())
      step = std::max<int64_t>(step, program.getStepBytes());
    if (variant.budgetBytes)
      overBytes[index] = stateBytesOf(planned) + step - *variant.budgetBytes;
    return status;
  }

  /// What runs again and what lies in the host's memory, under the variant's own budget.
  Status trade(PlannedVariant &variant, const PlannedVariant *decider) {
    CompileOptions own = options;
    own.spec.budgetBytes = variant.budgetBytes;
    const TrainingSpec &spec = own.spec;
    static const BudgetChoice allOnDevice;
    const BudgetChoice *other = nullptr;
    if (decider)
      other = decider->choice ? &*decider->choice : &allOnDevice;
    bool moves = spec.offload == "host" ||
                 (spec.offload == "auto" &&
                  (spec.budgetBytes || (other && !other->offload.states.empty())));
    Status status = Status::success();
    if (moves)
      status = tradeMemoryAndLink(variant.module, own, other,
                                  decider && decider->bucket == variant.bucket,
                                  variant.choice.emplace());
    else if (spec.hasFixedRecompute() || (spec.budgetBytes && spec.recompute != "none"))
      status = tradeMemory(variant.module, own, variant.choice.emplace());
    return status.ok() ? describeValues(variant.module, spec) : status;
  }

  /// That a variant pays for another one is said.
  void explain(size_t decider) {
    const std::optional<BudgetChoice> &choice = variants[decider].choice;
    if (decider == 0 || !choice || choice->offload.states.empty())
      return;
    std::string note =
        llvm::formatv("offload: {0} tensors of the state lie in the host's memory in all "
                      "variants, since '{1}' does not fit without that and state does "
                      "not move when a session changes its variant",
                      choice->offload.states.size(), variants[decider].name())
            .str();
    for (PlannedVariant &variant : variants)
      if (variant.choice)
        variant.choice->notes.push_back(note);
  }

  MutableArrayRef<PlannedVariant> variants;
  const CompileOptions &options;
  std::vector<int64_t> overBytes; // of each variant's budget
  bool isShared = false;
};

} // namespace

Status planVariants(MutableArrayRef<PlannedVariant> variants,
                    const CompileOptions &options) {
  return VariantPlanner(variants, options).run();
}

} // namespace sluice
