#include "runtime/KernelTable.h"

#include "kernels/MatrixUnit.h"

#include <algorithm>
#include <unordered_set>

namespace sluice {

static const fbs::CodeImage *imageFor(const Plan &plan, FeatureLevel level) {
  for (uint32_t i = 0; i < sizeOf(plan.raw().images()); ++i)
    if (viewOf(plan.raw().images()->Get(i)->level()) == codeLevelName(level))
      return plan.raw().images()->Get(i);
  return nullptr;
}

bool multipliesBf16(const Plan &plan) {
  for (uint32_t p = 0; p < sizeOf(plan.raw().programs()); ++p) {
    const fbs::Program *program = plan.raw().programs()->Get(p);
    for (uint32_t l = 0; l < sizeOf(program->launches()); ++l) {
      const fbs::Launch *launch = program->launches()->Get(l);
      for (uint32_t s = 0; s < sizeOf(launch->stages()); ++s) {
        const fbs::Stage *stage = launch->stages()->Get(s);
        const fbs::Kernel *kernel = plan.raw().kernels()->Get(stage->kernel());
        const int64_t *params = stage->params() ? stage->params()->data() : nullptr;
        if (!kernel->generated() &&
            multipliesBf16(viewOf(kernel->name()), params, sizeOf(stage->params())))
          return true;
      }
    }
  }
  return false;
}

static Status explainMissing(FeatureLevel level) {
  std::string list;
  for (const std::string &feature : missingFeatures(level))
    list += (list.empty() ? "" : ", ") + feature;
  return Status::cannotRunHere("this processor cannot run " +
                               std::string(levelName(level)) + " code: it lacks " + list);
}

Result<FeatureLevel> chooseLevel(const Plan &plan, std::optional<FeatureLevel> forced) {
  bool hasImages = sizeOf(plan.raw().images()) > 0;
  if (forced) {
    if (!canRun(*forced))
      return explainMissing(*forced);
    if (hasImages && !imageFor(plan, *forced))
      return Status::cannotRunHere("the plan has no code for " +
                                   std::string(codeLevelName(*forced)));
    return *forced;
  }
  bool multiplies = multipliesBf16(plan);
  for (FeatureLevel level :
       {FeatureLevel::Amx, FeatureLevel::Dots, FeatureLevel::V4, FeatureLevel::V3})
    if ((multiplies || level <= FeatureLevel::V4) && canRun(level) &&
        (!hasImages || imageFor(plan, level)))
      return level;
  if (!canRun(FeatureLevel::V3))
    return explainMissing(FeatureLevel::V3);
  if (imageFor(plan, FeatureLevel::V4))
    return explainMissing(FeatureLevel::V4);
  std::string levels;
  for (const fbs::CodeImage *image : *plan.raw().images())
    levels += (levels.empty() ? "" : ", ") + std::string(viewOf(image->level()));
  return Status::cannotRunHere("the plan has code for " + levels +
                               ", this runtime runs x86-64-v3 and x86-64-v4; compile it "
                               "with the version of sluice that runs it");
}

/// What the catalogue says the stage touches, against what its operands can reach.
static Status checkBuiltinStage(const Plan &plan, const fbs::Launch &launch,
                                const fbs::Stage &stage, const std::string &where) {
  const fbs::Kernel *kernel = plan.raw().kernels()->Get(stage.kernel());
  std::vector<OperandExtent> extents;
  std::string why;
  const int64_t *params = stage.params() ? stage.params()->data() : nullptr;
  int64_t units = stage.units() > 0 ? stage.units() : launch.units();
  if (!describeBuiltinLaunch(viewOf(kernel->name()), params, sizeOf(stage.params()),
                             units * stage.unit_scale(), extents, why))
    return Status::damaged("plan refused: " + where + ": " + why);
  if (extents.size() != sizeOf(stage.operands()))
    return Status::damaged(
        "plan refused: " + where + ": has " + std::to_string(sizeOf(stage.operands())) +
        " operands, the kernel takes " + std::to_string(extents.size()));
  bool shared = plan.threads() > 1 && launch.units() > launch.chunk();
  for (size_t i = 0; i < extents.size(); ++i) {
    const fbs::Operand &operand = *stage.operands()->Get(static_cast<uint32_t>(i));
    uint64_t slice = operand.worker_stride() ? operand.worker_stride() : operand.size();
    uint64_t needed = static_cast<uint64_t>(extents[i].bytes);
    if (operand.unit_stride() != 0) {
      uint64_t unitBytes = static_cast<uint64_t>(extents[i].unitBytes);
      uint64_t scale = static_cast<uint64_t>(stage.unit_scale());
      if (unitBytes == 0 || operand.unit_stride() / scale != unitBytes ||
          operand.unit_stride() % scale != 0)
        return Status::damaged("plan refused: " + where + ", operand " +
                               std::to_string(i) + ": cannot be cut by units");
      needed = 0; // proved by the check of operands
    }
    if (slice < needed)
      return Status::damaged("plan refused: " + where + ", operand " + std::to_string(i) +
                             ": the kernel touches " + std::to_string(needed) +
                             " bytes of " + std::to_string(slice));
    if (extents[i].perWorker && shared && operand.worker_stride() == 0)
      return Status::damaged("plan refused: " + where + ", operand " + std::to_string(i) +
                             ": workers share what each needs for itself");
  }
  return Status::success();
}

static Status checkBuiltinLaunches(const Plan &plan) {
  for (uint32_t p = 0; p < sizeOf(plan.raw().programs()); ++p) {
    const fbs::Program *program = plan.raw().programs()->Get(p);
    for (uint32_t l = 0; l < sizeOf(program->launches()); ++l) {
      const fbs::Launch *launch = program->launches()->Get(l);
      for (uint32_t s = 0; s < sizeOf(launch->stages()); ++s) {
        const fbs::Stage *stage = launch->stages()->Get(s);
        const fbs::Kernel *kernel = plan.raw().kernels()->Get(stage->kernel());
        if (kernel->generated())
          continue;
        std::string where = "program '" + std::string(viewOf(program->name())) +
                            "', launch " + std::to_string(l) + " ('" +
                            std::string(viewOf(kernel->name())) + "')";
        Status status = checkBuiltinStage(plan, *launch, *stage, where);
        if (!status.ok())
          return status;
      }
    }
  }
  return Status::success();
}

Result<KernelTable> bindKernels(const Plan &plan, FeatureLevel level,
                                const KernelResolver &resolver) {
  KernelTable table;
  table.level = level;
  if (const fbs::CodeImage *image = imageFor(plan, level)) {
    auto code = CodeImage::load(plan.file().subspan(image->offset(), image->size()),
                                std::string(levelName(level)));
    if (!code)
      return code.status();
    table.code = std::move(*code);
  }
  for (uint32_t i = 0; i < sizeOf(plan.raw().kernels()); ++i) {
    const fbs::Kernel *kernel = plan.raw().kernels()->Get(i);
    std::string_view name = viewOf(kernel->name());
    KernelFn function = nullptr;
    if (kernel->generated())
      function =
          table.code ? reinterpret_cast<KernelFn>(table.code->symbol(name)) : nullptr;
    else
      function = resolver ? resolver(name, level) : findBuiltinKernel(name, level);
    if (!function)
      return Status::cannotRunHere(
          "kernel '" + std::string(name) + "' is not in " +
          (kernel->generated() ? "the plan's code" : "this runtime") +
          "; compile the plan again with this version");
    table.functions.push_back(function);
  }
  if (!resolver)
    if (Status status = checkBuiltinLaunches(plan); !status.ok())
      return status;
  return table;
}

} // namespace sluice
