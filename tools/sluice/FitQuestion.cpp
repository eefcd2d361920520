#include "tools/sluice/FitQuestion.h"

#include "frontend/DeviceReader.h"
#include "frontend/SpecReader.h"

#include <algorithm>
#include <charconv>

namespace sluice::cli {

constexpr int64_t mostRanks = 4096;

std::vector<std::string> listOf(const std::string &text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Those of the command line, of the spec, or what the device has.
static std::optional<std::string> readBudgets(const FitArguments &arguments,
                                              FitQuestion &question) {
  const DeviceProfile &device = question.device;
  question.budgets.clear();
  if (!arguments.memory.empty()) {
    for (const std::string &part : listOf(arguments.memory)) {
      std::optional<int64_t> bytes = parseSize(part);
      if (!bytes)
        return "--memory '" + part + "': expected bytes or a size such as 8GiB";
      if (std::find(question.budgets.begin(), question.budgets.end(), bytes) ==
          question.budgets.end())
        question.budgets.push_back(bytes);
    }
  } else if (question.spec.budgetBytes) {
    question.budgets.push_back(question.spec.budgetBytes);
  } else if (device.memoryBytes > 0) {
    question.budgets.push_back(
        std::max<int64_t>(0, device.memoryBytes - device.contextBytes()));
  } else {
    question.budgets.push_back(std::nullopt);
  }
  question.spec.budgetBytes.reset();
  return std::nullopt;
}

static std::optional<std::string> readRanks(const std::string &text, TrainingSpec &spec) {
  if (!text.empty()) {
    int64_t count = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 ||
        count > mostRanks)
      return "--ranks " + text + ": expected 1 to " + std::to_string(mostRanks);
    spec.ranks = count;
  }
  if (spec.ranks > 1 && spec.asRanks > 1)
    return "several ranks: leave 'accumulate.as_ranks' out, which is what one rank does "
           "in place of many";
  if (spec.ranks > 1 &&
      (spec.buckets.size() > 1 || !spec.ladder.empty() || spec.offload != "none"))
    return "several ranks: several shapes, 'memory.ladder' and 'memory.offload' are not "
           "yet supported";
  return std::nullopt;
}

int readQuestion(const FitArguments &arguments, const FitChoice &choice,
                 const Console &console, FitQuestion &question) {
  std::vector<std::string> sets = arguments.sets;
  if (!choice.zero.empty())
    sets.push_back("parallel.zero=" + choice.zero);
  SpecResult read = readSpec(arguments.spec, sets);
  DeviceResult profile = readDevice(choice.device);
  std::vector<std::string> errors = read.errors;
  errors.insert(errors.end(), profile.errors.begin(), profile.errors.end());
  if (!errors.empty())
    return console.refuse(errors);
  question.device = *profile.profile;
  question.spec = *read.spec;
  TrainingSpec &spec = question.spec;
  std::optional<std::string> problem =
      parseShapes(arguments.shapes, spec.shapes, spec.dimensions);
  for (ShapeBucket &bucket : spec.buckets)
    parseShapes(arguments.shapes, bucket.shapes, bucket.dimensions);
  if (!problem)
    problem = readBudgets(arguments, question);
  if (!problem)
    problem = readRanks(choice.ranks, spec);
  if (problem)
    return console.fail(Status::usage(*problem));
  if (arguments.threads > 0)
    spec.threads = arguments.threads;
  else if (spec.threads == 0 && question.device.target != "cpu")
    spec.threads = 1; // the answer does not depend on the machine that gives it
  return 0;
}

} // namespace sluice::cli
