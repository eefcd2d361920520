#include "tools/sluice/PlanVariants.h"

namespace sluice::cli {
namespace {

std::string bucketNames(const Plan &plan) {
  std::string names;
  for (uint32_t bucket = 0; bucket < plan.buckets(); ++bucket)
    names += (bucket ? ", '" : "'") + plan.variant(bucket).bucketName + "'";
  return names;
}

/// Predicted, of what trains in the first bucket.
double stepUs(const Plan &plan, uint32_t rung) {
  for (const char *name : {"step", "micro"})
    if (const fbs::Program *program = plan.program(name, 0, rung))
      return program->predicted_us();
  return 0;
}

} // namespace

void addVariantOptions(CLI::App *app, VariantChoice &choice) {
  app->add_option("--bucket", choice.bucket,
                  "of a plan of several shapes: its name, such as T=64");
  app->add_option("--variant", choice.variant,
                  "of a plan with a memory ladder: its number, from 0 (most memory)");
}

Result<const PlanVariant *> findVariant(const Plan &plan, const VariantChoice &choice) {
  if (choice.variant >= plan.rungs())
    return Status::usage("--variant " + std::to_string(choice.variant) +
                         ": the plan has " + std::to_string(plan.rungs()) +
                         ", counted from 0");
  for (uint32_t bucket = 0; bucket < plan.buckets(); ++bucket)
    if (choice.bucket.empty() || plan.variant(bucket).bucketName == choice.bucket)
      return &plan.variant(bucket, choice.variant);
  return Status::usage("--bucket '" + choice.bucket + "': there are " +
                       bucketNames(plan));
}

Json ladderJson(const Plan &plan) {
  Json list = Json::array();
  for (uint32_t rung = 0; rung < plan.rungs(); ++rung) {
    const PlanVariant &variant = plan.variant(0, rung);
    list.push_back(
        {{"variant", rung},
         {"memory_fraction", variant.memoryFraction},
         {"budget_bytes", variant.budgetBytes > 0 ? Json(variant.budgetBytes) : Json()},
         {"step_bytes", plan.memory(rung).stepBytes},
         {"step_us", stepUs(plan, rung)}});
  }
  return list;
}

std::vector<std::vector<std::string>> ladderRows(const Plan &plan) {
  std::vector<std::vector<std::string>> rows;
  for (uint32_t rung = 0; plan.rungs() > 1 && rung < plan.rungs(); ++rung) {
    char share[32], us[32];
    std::snprintf(share, sizeof share, "%g", plan.variant(0, rung).memoryFraction);
    std::snprintf(us, sizeof us, "%.0f us", stepUs(plan, rung));
    PlanMemory memory = plan.memory(rung);
    rows.push_back({"variant " + std::to_string(rung), share, "state",
                    sizeText(memory.stateBytes), "step", sizeText(memory.stepBytes),
                    "predicted", us});
  }
  return rows;
}

} // namespace sluice::cli
