#include "tools/sluice/PrecisionTable.h"

#include "runtime/DType.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

namespace sluice::cli {
namespace {

/// The state that belongs to one parameter.
struct ParameterState {
  std::string stored, master = "-", moments = "-", why;
  std::optional<double> importance, increase; // of a policy by importance
  uint64_t bytes = 0;
  int64_t elements = 1;
};

std::string typeOf(const fbs::StateTensor &tensor) {
  return std::string(dtypeName(static_cast<DType>(tensor.dtype())));
}

constexpr std::string_view precisionTopic = "precision: ", policyTopic = "policy: ";

/// The number behind a word of a decision of the policy.
std::optional<double> numberBehind(std::string_view text, std::string_view word) {
  size_t at = text.find(word);
  if (at == std::string_view::npos)
    return std::nullopt;
  return std::strtod(std::string(text.substr(at + word.size())).c_str(), nullptr);
}

/// Moments of one parameter may differ in form: second ones where first ones are fp16.
void addMoment(const fbs::StateTensor &tensor, std::string &moments) {
  std::string_view format = viewOf(tensor.format());
  std::string form = format.empty() ? typeOf(tensor) : std::string(format);
  if (moments == "-" || moments == form)
    moments = form;
  else
    moments += ", " + form;
}

void addTensor(const fbs::StateTensor &tensor,
               std::map<std::string, ParameterState> &parameters) {
  std::string_view name = viewOf(tensor.name());
  size_t slash = name.find('/');
  if (slash == std::string_view::npos)
    return;
  std::string_view kind = name.substr(0, slash), rest = name.substr(slash + 1);
  constexpr std::string_view momentPrefix = "opt/";
  if (kind == "scale" && rest.starts_with(momentPrefix))
    rest.remove_prefix(momentPrefix.size());
  auto owner = parameters.find(std::string(rest));
  // Of "master/NAME/low" and "opt/NAME/m/scale" the name is what a parameter has.
  for (size_t end = rest.rfind('/');
       owner == parameters.end() && end != std::string_view::npos;
       end = rest.substr(0, end).rfind('/'))
    owner = parameters.find(std::string(rest.substr(0, end)));
  bool isStorage =
      kind == "scale" && (rest.ends_with("/blocks") || rest.ends_with("/tensor"));
  if (owner == parameters.end() || (kind != "master" && kind != "opt" && !isStorage))
    return;
  ParameterState &parameter = owner->second;
  parameter.bytes += tensor.size();
  if (isStorage)
    return;
  bool isRange = rest.ends_with("/range");
  bool isScale = kind == "opt" && (isRange || rest.ends_with("/scale"));
  if (kind == "master")
    parameter.master = rest.ends_with("/low") ? "split" : typeOf(tensor);
  else if (isRange)
    parameter.moments = "fp8";
  else if (!isScale && parameter.moments != "fp8")
    addMoment(tensor, parameter.moments);
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
    bool hasFormat = !viewOf(tensor.format()).empty();
    parameter.stored = hasFormat ? viewOf(tensor.format()) : typeOf(tensor);
    parameter.bytes = tensor.size();
    const auto *shape = hasFormat ? tensor.value_shape() : tensor.shape();
    for (uint32_t d = 0; d < sizeOf(shape); ++d)
      parameter.elements *= shape->Get(d);
  }
  for (uint32_t i = 0; i < sizeOf(state); ++i)
    addTensor(*state->Get(i), parameters);
  const auto *decisions = plan.raw().decisions();
  for (uint32_t i = 0; i < sizeOf(decisions); ++i) {
    std::string_view why = viewOf(decisions->Get(i)->value());
    auto owner = parameters.find(std::string(viewOf(decisions->Get(i)->key())));
    bool isPolicy = why.starts_with(policyTopic);
    if (owner == parameters.end() || !(isPolicy || why.starts_with(precisionTopic)))
      continue;
    ParameterState &parameter = owner->second;
    if (isPolicy) {
      parameter.importance = numberBehind(why, ", importance ");
      parameter.increase = numberBehind(why, ", expected increase ");
    }
    why.remove_prefix(isPolicy ? policyTopic.size() : precisionTopic.size());
    parameter.why += (parameter.why.empty() ? "" : "; ") + std::string(why);
  }
  return parameters;
}

} // namespace

Json precisionRows(const Plan &plan) {
  Json rows = Json::array();
  for (auto &[name, parameter] : parameterStates(plan)) {
    // What is stored in a format is decoded for its readers.
    bool narrow = parameter.stored == "bf16" || parameter.stored == "f16";
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
         {"importance", parameter.importance ? Json(*parameter.importance) : Json()},
         {"increase", parameter.increase ? Json(*parameter.increase) : Json()},
         {"why", why}});
  }
  return rows;
}

Json policyLines(const Plan &plan) {
  Json lines = Json::array();
  const auto *report = plan.raw().report();
  for (uint32_t i = 0; i < sizeOf(report); ++i)
    if (viewOf(report->Get(i)->key()) == "policy")
      lines.push_back(std::string(viewOf(report->Get(i)->value())));
  return lines;
}

namespace {

std::string formatted(const char *format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// A line of the table; of a policy by importance with what it went by.
std::vector<std::string> cellsOf(const Json &row, bool withImportance) {
  std::vector<std::string> line;
  for (const char *column : {"name", "computes", "stored", "master", "moments"})
    line.push_back(row[column].get<std::string>());
  line.push_back(std::to_string(row["bytes"].get<uint64_t>()));
  line.push_back(formatted("%.2f", row["bytes_per_element"].get<double>()));
  for (const char *column : {"importance", "increase"})
    if (withImportance)
      line.push_back(
          row[column].is_null() ? "-" : formatted("%.2e", row[column].get<double>()));
  line.push_back(row["why"].get<std::string>());
  return line;
}

} // namespace

std::vector<std::string> precisionLines(const Json &rows) {
  constexpr size_t firstNumber = 5; // numbers stand on the right
  bool withImportance = std::any_of(rows.begin(), rows.end(), [](const Json &row) {
    return !row["importance"].is_null();
  });
  std::vector<std::vector<std::string>> cells = {
      {"parameter", "computes", "stored", "master", "moments", "bytes", "B/element"}};
  if (withImportance)
    cells[0].insert(cells[0].end(), {"importance", "loss increase"});
  cells[0].push_back("why");
  uint64_t total = 0;
  double increase = 0;
  for (const Json &row : rows) {
    cells.push_back(cellsOf(row, withImportance));
    total += row["bytes"].get<uint64_t>();
    increase += row["increase"].is_null() ? 0 : row["increase"].get<double>();
  }
  std::vector<size_t> widths(cells[0].size());
  for (auto &line : cells)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  std::vector<std::string> lines;
  for (auto &line : cells) {
    std::string text;
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      std::string pad(widths[i] - line[i].size(), ' ');
      text += (i >= firstNumber ? pad + line[i] : line[i] + pad) + "  ";
    }
    lines.push_back(text + line.back());
  }
  lines.push_back("total " + std::to_string(total) +
                  " bytes of parameters, masters and moments");
  if (withImportance)
    lines.back() += "; expected increase of the loss " + formatted("%.3e", increase);
  return lines;
}

} // namespace sluice::cli
