// sluice check: can a plan run here; sluice explain: why is it as it is.

#include "runtime/CpuLevel.h"
#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/MemoryPicture.h"

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

struct ExplainArguments {
  std::string plan, tensor;
};

void explainState(const fbs::StateTensor &tensor, Console &console) {
  std::string name(viewOf(tensor.name()));
  std::string text =
      name + ": " + fbs::EnumNameRole(tensor.role()) + " " + shapeText(tensor.shape()) +
      " " + fbs::EnumNameDType(tensor.dtype()) + ", " + std::to_string(tensor.size()) +
      " bytes at state offset " + std::to_string(tensor.offset()) +
      (tensor.role() == fbs::Role::parameter
           ? tensor.trainable() ? ", trained" : ", frozen: no gradient, no moments"
           : "");
  console.line(text);
  console.result["decisions"].push_back({{"subject", name}, {"why", text}});
}

void explainBuffers(const fbs::Program &program, const std::string &wanted,
                    Console &console) {
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(i);
    if (viewOf(buffer.name()).find(wanted) == std::string_view::npos)
      continue;
    std::string text =
        std::string(viewOf(program.name())) + ": '" + std::string(viewOf(buffer.name())) +
        "' (" + std::string(viewOf(buffer.category())) + ") takes " +
        std::to_string(buffer.size()) + " bytes at step offset " +
        std::to_string(buffer.offset()) + ", live from launch " +
        std::to_string(buffer.first()) + " to " + std::to_string(buffer.last());
    console.line(text);
    console.result["decisions"].push_back(
        {{"subject", std::string(viewOf(buffer.name()))}, {"why", text}});
  }
}

int runExplain(const ExplainArguments &arguments, Console &console) {
  auto plan = PlanReader::readFile(arguments.plan);
  if (!plan)
    return console.fail(plan.status());
  const fbs::Plan &raw = (*plan)->raw();
  console.result["decisions"] = Json::array();
  for (auto *list : {raw.report(), raw.decisions()})
    for (uint32_t i = 0; i < sizeOf(list); ++i) {
      std::string subject(viewOf(list->Get(i)->key())),
          why(viewOf(list->Get(i)->value()));
      if (!arguments.tensor.empty() &&
          subject.find(arguments.tensor) == std::string::npos)
        continue;
      console.line(subject + ": " + why);
      console.result["decisions"].push_back({{"subject", subject}, {"why", why}});
    }
  for (uint32_t i = 0; i < sizeOf(raw.state()); ++i) {
    const fbs::StateTensor &tensor = *raw.state()->Get(i);
    bool wanted = !arguments.tensor.empty() &&
                  viewOf(tensor.name()).find(arguments.tensor) != std::string_view::npos;
    if (wanted)
      explainState(tensor, console);
  }
  if (!arguments.tensor.empty())
    for (uint32_t i = 0; i < sizeOf(raw.programs()); ++i)
      explainBuffers(*raw.programs()->Get(i), arguments.tensor, console);
  if (!arguments.tensor.empty() && console.result["decisions"].empty())
    return console.fail(Status::refused(
        "the plan has no tensor or decision named like '" + arguments.tensor +
        "'; 'sluice explain " + arguments.plan + "' lists the decisions"));
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

Command addExplain(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App *app = parent.add_subcommand(
      "explain", "Say why a plan is as it is, as a whole or for one tensor");
  app->add_option("plan", arguments->plan, "plan file")->required();
  app->add_option("tensor", arguments->tensor, "part of a tensor's name");
  app->footer("Example: sluice explain model.plan fc1.weight");
  return {app, [arguments, &console] { return runExplain(*arguments, console); }};
}

} // namespace sluice::cli
