// sluice explain: why a plan is as it is, as a whole or for one tensor.

#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/GuardFile.h"
#include "tools/sluice/MemoryCertificate.h"
#include "tools/sluice/PlanVariants.h"
#include "tools/sluice/PrecisionTable.h"
#include "tools/sluice/TensorStory.h"

namespace sluice::cli {
namespace {

struct ExplainArguments {
  std::string plan, tensor;
  VariantChoice choice;
  bool precision = false, updates = false;
};

void say(Console &console, const std::string &subject, const std::string &why) {
  console.line(subject.empty() ? why : subject + ": " + why);
  console.result["decisions"].push_back({{"subject", subject}, {"why", why}});
}

/// What the compiler has written down, as far as `wanted` is part of its subject.
void sayReport(const Plan &plan, const std::string &wanted, Console &console) {
  for (auto *list : {plan.raw().report(), plan.raw().decisions()})
    for (uint32_t i = 0; i < sizeOf(list); ++i) {
      std::string subject(viewOf(list->Get(i)->key()));
      if (wanted.empty() || subject.find(wanted) != std::string::npos)
        say(console, subject, std::string(viewOf(list->Get(i)->value())));
    }
}

void sayCertificates(const Plan &plan, const PlanVariant &variant, Console &console) {
  console.result["entries"] = certificates(plan, variant);
  for (const std::string &line : certificateLines(plan, variant))
    console.line(line);
}

int sayPrecision(const Plan &plan, const std::string &wanted, Console &console) {
  Json rows = Json::array();
  for (Json &row : precisionRows(plan))
    if (row["name"].get<std::string>().find(wanted) != std::string::npos)
      rows.push_back(std::move(row));
  if (rows.empty())
    return console.fail(
        Status::refused("the plan has no parameter named like '" + wanted +
                        "'; 'sluice explain --precision' without a name lists them"));
  for (const std::string &line : precisionLines(rows))
    console.line(line);
  Json policy = policyLines(plan);
  for (const Json &line : policy)
    console.line("policy: " + line.get<std::string>());
  console.result["policy"] = std::move(policy);
  console.result["parameters"] = std::move(rows);
  for (const std::string &line : guardLines(plan, console.result["measured"]))
    console.line(line);
  return console.finish();
}

/// Which weights each step reads and which gradients it applies, where groups take turns
/// or wait.
void sayVersions(const Plan &plan, const std::string &wanted, Console &console) {
  Json rows = Json::array();
  const auto *versions = plan.raw().versions();
  for (uint32_t i = 0; i < sizeOf(versions); ++i) {
    const fbs::VersionRow &row = *versions->Get(i);
    std::string group(viewOf(row.group()));
    if (("group " + group).find(wanted) == std::string::npos)
      continue;
    Json entry{{"step", row.step()},
               {"group", group},
               {"read", row.read()},
               {"version", row.version()},
               {"gradients", Json::array()}};
    if (row.first_gradient() >= 0)
      entry["gradients"] = {row.first_gradient(), row.last_gradient()};
    rows.push_back(entry);
    std::string line = "step " + std::to_string(row.step()) + ", group " + group +
                       ": reads version " + std::to_string(row.read());
    if (row.first_gradient() < 0)
      line += ", is not updated";
    else if (row.first_gradient() == row.last_gradient())
      line += ", applies the gradient of step " + std::to_string(row.last_gradient());
    else
      line += ", applies the mean gradient of steps " +
              std::to_string(row.first_gradient()) + " to " +
              std::to_string(row.last_gradient());
    console.line(line);
  }
  if (!rows.empty())
    console.result["versions"] = std::move(rows);
}

/// The groups of parameters, what is in them, and when they are updated.
int sayUpdates(const Plan &plan, const std::string &wanted, Console &console) {
  for (auto *list : {plan.raw().report(), plan.raw().decisions()})
    for (uint32_t i = 0; i < sizeOf(list); ++i) {
      std::string subject(viewOf(list->Get(i)->key()));
      std::string why(viewOf(list->Get(i)->value()));
      constexpr std::string_view topic = "updates: ";
      if (subject == "update groups")
        say(console, subject, why);
      else if (why.starts_with(topic) && subject.find(wanted) != std::string::npos)
        say(console, subject, why.substr(topic.size()));
    }
  if (console.result["decisions"].empty())
    say(console, "", "all parameters are updated together, at every update");
  sayVersions(plan, wanted, console);
  return console.finish();
}

int runExplain(const ExplainArguments &arguments, Console &console) {
  auto read = PlanReader::readFile(arguments.plan);
  if (!read)
    return console.fail(read.status());
  const Plan &plan = **read;
  auto found = findVariant(plan, arguments.choice);
  if (!found)
    return console.fail(found.status());
  const PlanVariant &variant = **found;
  console.result["decisions"] = Json::array();
  if (arguments.precision)
    return sayPrecision(plan, arguments.tensor, console);
  if (arguments.updates)
    return sayUpdates(plan, arguments.tensor, console);
  if (arguments.tensor.empty())
    sayCertificates(plan, variant, console);
  sayReport(plan, arguments.tensor, console);
  for (auto &[subject, why] : arguments.tensor.empty()
                                  ? memoryChoices(plan, variant)
                                  : tensorStory(plan, variant, arguments.tensor))
    say(console, subject, why);
  if (!arguments.tensor.empty() && console.result["decisions"].empty())
    return console.fail(Status::refused(
        "the plan has no tensor or decision named like '" + arguments.tensor +
        "'; 'sluice explain " + arguments.plan + "' lists the decisions"));
  return console.finish();
}

} // namespace

Command addExplain(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App *app = parent.add_subcommand(
      "explain", "Say why a plan is as it is, as a whole or for one tensor");
  app->add_option("plan", arguments->plan, "plan file")->required();
  app->add_option("tensor", arguments->tensor,
                  "name of a tensor or node of the model, or a part of one");
  app->add_flag("--precision", arguments->precision,
                "for each parameter: what it computes in, how it is stored, and why");
  app->add_flag("--updates", arguments->updates,
                "groups of parameters, what they hold, and when they are updated");
  addVariantOptions(app, arguments->choice);
  app->footer("Example: sluice explain model.plan fc1.weight");
  return {app, [arguments, &console] { return runExplain(*arguments, console); }};
}

} // namespace sluice::cli
