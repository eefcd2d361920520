#include "tools/sluice/FitTable.h"

#include "passes/LaunchCosts.h"
#include "tools/sluice/FitModel.h"

#include <algorithm>
#include <chrono>

namespace sluice::cli {
namespace {

/// All combinations of devices, ranks and what is shared out; of one rank nothing is.
std::vector<FitChoice> choicesOf(const FitArguments &arguments) {
  std::vector<FitChoice> choices;
  for (const std::string &device : listOf(arguments.device))
    for (const std::string &ranks : listOf(arguments.ranks))
      for (const std::string &zero : listOf(arguments.zero))
        if (FitChoice choice{device, ranks, ranks == "1" ? "" : zero};
            std::find(choices.begin(), choices.end(), choice) == choices.end())
          choices.push_back(choice);
  return choices;
}

FitRow rowOf(const FitChoice &choice, const FitQuestion &question, const FitModel &model,
             const MemoryCurve &curve, const std::optional<int64_t> &budget) {
  FitRow row;
  row.device = question.device;
  row.ranks = question.spec.ranks;
  row.zero = choice.zero;
  row.budget = budget;
  row.smallestBytes = curve.smallestBytes();
  const MemoryPoint *chosen =
      budget ? curve.fastestWithin(*budget) : &curve.points.back();
  const MemoryPoint &point = chosen ? *chosen : curve.points.front();
  row.arenaBytes = point.arenaBytes;
  row.samples =
      model.batch(0) * std::max<int64_t>(1, question.spec.accumulate) * row.ranks;
  LinkTopology links = linksOf(question.device.rates);
  row.times = updateTimes(point.programs, row.ranks, links);
  if (row.ranks > 1)
    row.link = enoughLink(point.programs, row.ranks, links);
  return row;
}

Status addRows(const FitArguments &arguments, const FitChoice &choice,
               const FitQuestion &question, FitTable &table) {
  FitModel model(arguments.model, question.spec, question.device, arguments.points);
  std::vector<MemoryCurve> curves;
  if (Status status = model.findCurves(curves); !status.ok())
    return status;
  for (const std::optional<int64_t> &budget : question.budgets)
    table.rows.push_back(rowOf(choice, question, model, curves.front(), budget));
  for (const std::string &note : model.notes())
    if (std::find(table.notes.begin(), table.notes.end(), note) == table.notes.end())
      table.notes.push_back(note);
  return Status::success();
}

} // namespace

bool wantsTable(const FitArguments &arguments) {
  for (const std::string *list :
       {&arguments.device, &arguments.ranks, &arguments.zero, &arguments.memory})
    if (listOf(*list).size() > 1)
      return true;
  return false;
}

int runFitTable(const FitArguments &arguments, Console &console) {
  auto start = std::chrono::steady_clock::now();
  for (auto [name, list] : {std::pair{"--device", &arguments.device},
                            {"--ranks", &arguments.ranks},
                            {"--zero", &arguments.zero},
                            {"--memory", &arguments.memory}})
    if (std::vector<std::string> parts = listOf(*list);
        parts.size() > 1 && std::count(parts.begin(), parts.end(), "") > 0)
      return console.fail(Status::usage(std::string(name) + " '" + *list +
                                        "': a part of the list is empty"));
  FitTable table;
  table.model = arguments.model;
  std::vector<FitChoice> choices = choicesOf(arguments);
  std::vector<FitQuestion> questions(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) // all are read before one is planned
    if (int code = readQuestion(arguments, choices[i], console, questions[i]); code != 0)
      return code;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (questions[i].spec.buckets.size() > 1 || !questions[i].spec.ladder.empty())
      return console.fail(Status::usage("a table of several devices, ranks or budgets is "
                                        "for one shape and without 'memory.ladder'"));
    if (Status status = addRows(arguments, choices[i], questions[i], table); !status.ok())
      return console.fail(status);
  }
  std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  table.seconds = taken.count();
  fillTableJson(table, console.result);
  if (!arguments.svg.empty())
    if (Status status = writeWholeFile(arguments.svg, tableSvg(table)); !status.ok())
      return console.fail(status);
  printTable(table, console);
  console.finish();
  bool any = std::any_of(table.rows.begin(), table.rows.end(),
                         [](const FitRow &row) { return row.fits(); });
  return any ? 0 : static_cast<int>(StatusCode::doesNotFit);
}

} // namespace sluice::cli
