#include "tools/sluice/PrecisionTable.h"

#include "runtime/DType.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

namespace sluice::cli {
namespace {

/// The state that belongs to one parameter.
struct ParameterState {
  std::string stored, master = "-", moments = "-", why;
  uint64_t bytes = 0;
  int64_t elements = 1;
};

std::string typeOf(const fbs::StateTensor &tensor) {
  return std::string(dtypeName(static_cast<DType>(tensor.dtype())));
}

constexpr std::string_view precisionTopic = "precision: ";

void addTensor(const fbs::StateTensor &tensor,
               std::map<std::string, ParameterState> &parameters) {
  std::string_view name = viewOf(tensor.name());
  size_t slash = name.find('/');
  if (slash == std::string_view::npos)
    return;
  std::string_view kind = name.substr(0, slash), rest = name.substr(slash + 1);
  auto owner = parameters.find(std::string(rest));
  // Of "master/NAME/low" and "opt/NAME/m/scale" the name is what a parameter has.
  for (size_t end = rest.rfind('/');
       owner == parameters.end() && end != std::string_view::npos;
       end = rest.substr(0, end).rfind('/'))
    owner = parameters.find(std::string(rest.substr(0, end)));
  if (owner == parameters.end() || (kind != "master" && kind != "opt"))
    return;
  ParameterState &parameter = owner->second;
  parameter.bytes += tensor.size();
  bool isRange = rest.ends_with("/range");
  bool isScale = kind == "opt" && (isRange || rest.ends_with("/scale"));
  if (kind == "master")
    parameter.master = rest.ends_with("/low") ? "split" : typeOf(tensor);
  else if (isRange)
    parameter.moments = "fp8";
  else if (!isScale && parameter.moments != "fp8")
    parameter.moments = typeOf(tensor);
}

std::map<std::string, ParameterState> parameterStates(const Plan &plan) {
  std::map<std::string, ParameterState> parameters;
  const auto *state = plan.raw().state();
  for (uint32_t i = 0; i < sizeOf(state); ++i) {
    const fbs::StateTensor &tensor = *state->Get(i);
    if (tensor.role() != fbs::Role::parameter)
      continue;
    ParameterState &parameter =
        parameters[std::string(viewOf(tensor.name()).substr(sizeof("param/") - 1))];
    parameter.stored = typeOf(tensor);
    parameter.bytes = tensor.size();
    for (uint32_t d = 0; d < sizeOf(tensor.shape()); ++d)
      parameter.elements *= tensor.shape()->Get(d);
  }
  for (uint32_t i = 0; i < sizeOf(state); ++i)
    addTensor(*state->Get(i), parameters);
  const auto *decisions = plan.raw().decisions();
  for (uint32_t i = 0; i < sizeOf(decisions); ++i) {
    std::string_view why = viewOf(decisions->Get(i)->value());
    auto owner = parameters.find(std::string(viewOf(decisions->Get(i)->key())));
    if (owner == parameters.end() || !why.starts_with(precisionTopic))
      continue;
    std::string &text = owner->second.why;
    text += (text.empty() ? "" : "; ") + std::string(why.substr(precisionTopic.size()));
  }
  return parameters;
}

} // namespace

Json precisionRows(const Plan &plan) {
  Json rows = Json::array();
  for (auto &[name, parameter] : parameterStates(plan)) {
    bool narrow = parameter.stored != "f32";
    std::string why = parameter.why.empty() ? "the plan computes in f32" : parameter.why;
    double elements = static_cast<double>(std::max<int64_t>(parameter.elements, 1));
    rows.push_back(
        {{"name", name},
         {"computes", narrow ? parameter.stored : "f32"},
         {"stored", parameter.stored},
         {"master", parameter.master},
         {"moments", parameter.moments},
         {"bytes", parameter.bytes},
         {"bytes_per_element", static_cast<double>(parameter.bytes) / elements},
         {"why", why}});
  }
  return rows;
}

std::vector<std::string> precisionLines(const Json &rows) {
  constexpr std::array<const char *, 5> columns = {"name", "computes", "stored", "master",
                                                   "moments"};
  std::vector<std::array<std::string, 8>> cells = {{"parameter", "computes", "stored",
                                                    "master", "moments", "bytes",
                                                    "B/element", "why"}};
  uint64_t total = 0;
  for (const Json &row : rows) {
    std::array<std::string, 8> &line = cells.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i)
      line[i] = row[columns[i]].get<std::string>();
    char perElement[32];
    std::snprintf(perElement, sizeof perElement, "%.2f",
                  row["bytes_per_element"].get<double>());
    line[5] = std::to_string(row["bytes"].get<uint64_t>());
    line[6] = perElement;
    line[7] = row["why"].get<std::string>();
    total += row["bytes"].get<uint64_t>();
  }
  std::array<size_t, 8> widths{};
  for (auto &line : cells)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  std::vector<std::string> lines;
  for (auto &line : cells) {
    std::string text;
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      std::string pad(widths[i] - line[i].size(), ' ');
      bool isNumber = i == 5 || i == 6;
      text += (isNumber ? pad + line[i] : line[i] + pad) + "  ";
    }
    lines.push_back(text + line[7]);
  }
  lines.push_back("total " + std::to_string(total) +
                  " bytes of parameters, masters and moments");
  return lines;
}

} // namespace sluice::cli
