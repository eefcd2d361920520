// sluice check: can a plan run here.

#include "runtime/KernelTable.h"
#include "runtime/PlanReader.h"
#include "tools/sluice/PlanVariants.h"

namespace sluice::cli {
namespace {

/// Where the plan's products of bf16 run: on the matrix unit their bits are others.
std::string productsText(FeatureLevel level) {
  if (level == FeatureLevel::Amx)
    return "on the matrix unit (level amx)";
  auto lacking = [](FeatureLevel better) {
    std::string list;
    for (const std::string &feature : missingFeatures(better))
      list += (list.empty() ? "" : ", ") + feature;
    return "for level " + std::string(levelName(better)) + " this machine lacks " + list;
  };
  if (level == FeatureLevel::Dots)
    return "by dot products of pairs (level avx512-bf16), " + lacking(FeatureLevel::Amx);
  return "in f32, " + lacking(FeatureLevel::Dots) + ", " + lacking(FeatureLevel::Amx);
}

int runCheck(const std::string &path, Console &console) {
  auto plan = PlanReader::readFile(path);
  if (!plan)
    return console.fail(plan.status());
  Json reasons = Json::array();
  auto level = chooseLevel(**plan);
  Status status = level ? Status::success() : level.status();
  if (level)
    if (auto kernels = bindKernels(**plan, *level); !kernels)
      status = kernels.status();
  if (!status.ok())
    reasons.push_back(status.message);
  console.result["ok"] = reasons.empty();
  console.result["reasons"] = reasons;
  console.result["state_bytes"] = (*plan)->memory().stateBytes;
  console.result["buckets"] = Json::array();
  for (uint32_t bucket = 0; bucket < (*plan)->buckets(); ++bucket) {
    const PlanVariant &variant = (*plan)->variant(bucket);
    console.result["buckets"].push_back({{"name", variant.bucketName},
                                         {"batch", variant.batch},
                                         {"step_bytes", variant.stepBytes}});
  }
  console.result["variants"] = ladderJson(**plan);
  console.result["step_bytes"] = (*plan)->memory().stepBytes;
  console.result["host_state_bytes"] = (*plan)->memory().hostStateBytes;
  console.result["host_step_bytes"] = (*plan)->memory().hostStepBytes;
  if (!status.ok()) {
    console.message("error: " + status.message);
    console.finish();
    return static_cast<int>(status.code);
  }
  console.result["level"] = levelName(*level);
  console.line("can run here: " + std::string(codeLevelName(*level)) + " code, state " +
               sizeText((*plan)->memory().stateBytes) + ", step " +
               sizeText((*plan)->memory().stepBytes) + ", " +
               std::to_string((*plan)->threads()) + " threads");
  if (multipliesBf16(**plan)) {
    std::string products = productsText(*level);
    console.result["bf16_products"] = products;
    console.line("products of bf16: " + products);
  }
  if (auto rows = ladderRows(**plan); !rows.empty())
    console.line(tableText(rows));
  return console.finish();
}

} // namespace

Command addCheck(CLI::App &parent, Console &console) {
  auto plan = std::make_shared<std::string>();
  CLI::App *app =
      parent.add_subcommand("check", "Say whether a plan can run on this machine");
  app->add_option("plan", *plan, "plan file")->required();
  app->footer("Example: sluice check model.plan");
  return {app, [plan, &console] { return runCheck(*plan, console); }};
}

} // namespace sluice::cli
