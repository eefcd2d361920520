#include "tools/sluice/ProbeReport.h"

#include <algorithm>
#include <cstdio>

namespace sluice::cli {
namespace {

bool overflows(const ParameterImportance &parameter, size_t format) {
  for (int64_t b = 0; b < parameter.grid().count(); ++b)
    if (parameter.overflows(format, b))
      return true;
  return false;
}

Json figureJson(const RunningMean &figure, bool hasError) {
  Json out = {{"mean", figure.mean()}};
  if (!hasError)
    return out;
  out["stderr"] = figure.standardError();
  out["low"] = figure.mean() - figure.halfInterval();
  out["high"] = figure.mean() + figure.halfInterval();
  return out;
}

std::string numberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

} // namespace

Json probeRows(const Importance &importance, bool hasError) {
  Json rows = Json::array();
  for (const ParameterImportance &p : importance.parameters) {
    Json row = {{"name", p.name()},
                {"shape", p.shape()},
                {"elements", p.weights().size()},
                {"blocks", p.grid().count()},
                {"importance", figureJson(p.importance().whole, hasError)},
                {"increase", Json::object()}};
    for (size_t f = 0; f < std::size(probedFormats); ++f) {
      std::string name(traitsOf(probedFormats[f]).name);
      row["increase"][name] =
          overflows(p, f) ? Json() : figureJson(p.increase(f).whole, hasError);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string probeTable(const Importance &importance, bool hasError) {
  constexpr StoredFormat shown[] = {StoredFormat::bf16, StoredFormat::e4m3,
                                    StoredFormat::mxfp8, StoredFormat::mxfp4};
  std::vector<std::vector<std::string>> rows = {
      {"parameter", "elements", "blocks", "importance", "+-"}};
  for (StoredFormat format : shown)
    rows[0].emplace_back(traitsOf(format).name);
  for (const ParameterImportance &p : importance.parameters) {
    const RunningMean &whole = p.importance().whole;
    std::vector<std::string> &row = rows.emplace_back();
    row = {p.name(), std::to_string(p.weights().size()), std::to_string(p.grid().count()),
           numberText(whole.mean()), hasError ? numberText(whole.halfInterval()) : "-"};
    for (size_t f = 0; f < std::size(probedFormats); ++f)
      if (std::count(std::begin(shown), std::end(shown), probedFormats[f]) > 0)
        row.push_back(overflows(p, f) ? "inf" : numberText(p.increase(f).whole.mean()));
  }
  return tableText(rows);
}

void reportCoupling(const GroupCoupling &coupling, Console &console) {
  Json &out = console.result["coupling"];
  out = {{"kappa", coupling.kappa()},
         {"noise", coupling.noise()},
         {"samples", coupling.samples()}};
  char text[160];
  std::snprintf(text, sizeof text,
                "coupling of %zu update groups: %.3g of the curvature lies between them "
                "(independent ones: %.3g of so many samples)",
                coupling.groups().size(), coupling.kappa(), coupling.noise());
  console.line(text);
  std::vector<double> neighbours = coupling.neighbours();
  for (size_t k = 0; k < neighbours.size(); ++k) {
    const std::string &first = coupling.groups()[k], &second = coupling.groups()[k + 1];
    out["neighbours"].push_back(
        {{"first", first}, {"second", second}, {"coupling", neighbours[k]}});
    std::snprintf(text, sizeof text, ": %.3g", neighbours[k]);
    console.line("  " + first + " and " + second + text);
  }
}

} // namespace sluice::cli
