#include "tools/sluice/TaskFile.h"

#include <filesystem>
#include <regex>
#include <set>
#include <yaml-cpp/yaml.h>

namespace sluice::cli {

bool AcceptRule::holds(double value, double previous) const {
  double limit = isRelative ? previous + bound : bound;
  if (comparison == ">=")
    return value >= limit;
  if (comparison == ">")
    return value > limit;
  return comparison == "<=" ? value <= limit : value < limit;
}

Result<AcceptRule> parseAcceptRule(const std::string &text) {
  static const std::regex form(R"(^\s*([a-z_][a-z0-9_.=]*)\s*(>=|<=|>|<)\s*)"
                               R"((?:(previous)\s*(?:([+-])\s*([0-9.eE-]+))?|)"
                               R"((-?[0-9][0-9.eE-]*))\s*$)");
  std::smatch match;
  if (!std::regex_match(text, match, form))
    return Status::refused("'accept_if' is '" + text +
                           "', expected such as 'accuracy >= previous - 0.01' or "
                           "'forgetting <= 0.05'");
  AcceptRule rule;
  rule.text = text, rule.figure = match[1], rule.comparison = match[2];
  rule.isRelative = match[3].matched;
  std::string number = rule.isRelative ? match[5].str() : match[6].str();
  rule.bound = number.empty() ? 0 : std::strtod(number.c_str(), nullptr);
  if (match[4] == "-")
    rule.bound = -rule.bound;
  return rule;
}

/// 0 stands for a length that is not given.
static Status readCount(const YAML::Node &value, int64_t &count) {
  count = value.as<int64_t>();
  return count > 0 ? Status::success()
                   : Status::refused("give 'epochs' or 'steps', and more than 0");
}

static Status readKeys(const YAML::Node &root, TaskFile &task) {
  Status status = Status::success();
  for (const auto &entry : root) {
    auto key = entry.first.as<std::string>();
    const YAML::Node &value = entry.second;
    if (key == "name")
      task.name = value.as<std::string>();
    else if (key == "data")
      task.data = value.as<std::vector<std::string>>();
    else if (key == "eval_data")
      task.evalData = value.as<std::vector<std::string>>();
    else if (key == "epochs")
      status = readCount(value, task.epochs);
    else if (key == "steps")
      status = readCount(value, task.steps);
    else if (key == "accept_if") {
      auto rule = parseAcceptRule(value.as<std::string>());
      if (!rule)
        return rule.status();
      task.acceptIf = *rule;
    } else
      return Status::refused("unknown key '" + key +
                             "', expected name, data, eval_data, epochs, steps or "
                             "accept_if");
    if (!status.ok())
      return status;
  }
  if (task.data.empty())
    return Status::refused("'data' is missing: a list as of --data");
  if (task.evalData.empty())
    return Status::refused("'eval_data' is missing: a list as of --eval-data");
  if (task.epochs > 0 && task.steps > 0)
    return Status::refused("give 'epochs' or 'steps', and more than 0");
  return Status::success();
}

Result<TaskFile> readTaskFile(const std::string &path) {
  TaskFile task;
  task.name = std::filesystem::path(path).stem().string();
  Status status = Status::success();
  try {
    YAML::Node root = YAML::LoadFile(path);
    status = root.IsMap() ? readKeys(root, task)
                          : Status::refused("expected a map with 'data' and 'eval_data'");
  } catch (const YAML::BadFile &) {
    return Status::refused("cannot read the task '" + path + "'");
  } catch (const YAML::Exception &error) {
    status = Status::refused(error.what());
  }
  if (!status.ok())
    return Status::refused("task '" + path + "': " + status.message);
  return task;
}

Result<std::vector<TaskFile>> readTaskFiles(const std::vector<std::string> &lists) {
  std::vector<TaskFile> tasks;
  std::set<std::string> names;
  for (const std::string &list : lists)
    for (size_t begin = 0; begin <= list.size();) {
      size_t end = std::min(list.find(',', begin), list.size());
      auto task = readTaskFile(list.substr(begin, end - begin));
      if (!task)
        return task.status();
      if (!names.insert(task->name).second)
        return Status::refused("two tasks have the name '" + task->name +
                               "'; give each a 'name' of its own");
      tasks.push_back(std::move(*task));
      begin = end + 1;
    }
  return tasks;
}

} // namespace sluice::cli
