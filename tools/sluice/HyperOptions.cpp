#include "tools/sluice/HyperOptions.h"

#include <cmath>

namespace sluice::cli {

void addHyperOptions(CLI::App *app, HyperOptions &options) {
  app->add_option(
      "--hyper", options.hyper,
      "GROUP.NAME=VALUE: a hyper-parameter of a group from here on, such as "
      "default.weight_decay=0.1; clip_max=VALUE; =plan returns to the plan's");
  app->add_option("--freeze", options.freeze,
                  "GROUP: no update, no momentum, no decay from here on");
  app->add_option("--unfreeze", options.unfreeze, "GROUP: train it again");
}

static Status applyHyper(const std::string &text, Session &session) {
  size_t equals = text.find('=');
  std::string subject = text.substr(0, equals), value;
  if (equals != std::string::npos)
    value = text.substr(equals + 1);
  char *end = nullptr;
  double number = value == "plan" ? std::nan("") : std::strtod(value.c_str(), &end);
  bool isNumber = value == "plan" ||
                  (end && end != value.c_str() && *end == '\0' && std::isfinite(number));
  size_t dot = subject.rfind('.');
  if (!isNumber || subject.empty() || (dot == std::string::npos && subject != "clip_max"))
    return Status::usage("--hyper '" + text +
                         "': expected GROUP.NAME=VALUE or clip_max=VALUE");
  if (dot == std::string::npos)
    return session.setHyper("", subject, number);
  return session.setHyper(subject.substr(0, dot), subject.substr(dot + 1), number);
}

Status applyHyperOptions(const HyperOptions &options, Session &session) {
  for (const std::string &text : options.hyper)
    if (Status status = applyHyper(text, session); !status.ok())
      return status;
  for (const std::string &group : options.freeze)
    if (Status status = session.setFrozen(group, true); !status.ok())
      return status;
  for (const std::string &group : options.unfreeze)
    if (Status status = session.setFrozen(group, false); !status.ok())
      return status;
  return Status::success();
}

} // namespace sluice::cli
