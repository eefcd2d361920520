// sluice check: can a plan run here.

#include "runtime/CpuLevel.h"
#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {
namespace {

/// The best level that the plan has code for and this processor can run.
Result<std::string> chooseLevel(const Plan &plan) {
  std::string reason = "the plan has no code";
  for (FeatureLevel level : {FeatureLevel::V4, FeatureLevel::V3})
    for (uint32_t i = 0; i < sizeOf(plan.raw().images()); ++i) {
      if (viewOf(plan.raw().images()->Get(i)->level()) != levelName(level))
        continue;
      if (canRun(level))
        return std::string(levelName(level));
      reason = "the plan's " + std::string(levelName(level)) +
               " code needs processor features that are missing here:";
      for (const std::string &feature : missingFeatures(level))
        reason += " " + feature;
    }
  return Status::cannotRunHere(reason);
}

int runCheck(const std::string &path, Console &console) {
  auto plan = PlanReader::readFile(path);
  if (!plan)
    return console.fail(plan.status());
  Json reasons = Json::array();
  auto level = chooseLevel(**plan);
  if (!level)
    reasons.push_back(level.status().message);
  console.result["ok"] = reasons.empty();
  console.result["reasons"] = reasons;
  console.result["state_bytes"] = (*plan)->memory().stateBytes;
  console.result["step_bytes"] = (*plan)->memory().stepBytes;
  console.result["host_state_bytes"] = (*plan)->memory().hostStateBytes;
  console.result["host_step_bytes"] = (*plan)->memory().hostStepBytes;
  if (!level) {
    console.message("error: " + level.status().message);
    console.finish();
    return static_cast<int>(StatusCode::cannotRunHere);
  }
  console.result["level"] = *level;
  console.line("can run here: " + *level + " code, state " +
               sizeText((*plan)->memory().stateBytes) + ", step " +
               sizeText((*plan)->memory().stepBytes) + ", " +
               std::to_string((*plan)->threads()) + " threads");
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
