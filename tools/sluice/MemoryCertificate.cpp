#include "tools/sluice/MemoryCertificate.h"

#include <algorithm>

namespace sluice::cli {
namespace {

double gapOf(double value, double bound) { return bound > 0 ? value / bound - 1 : 0; }

std::string percentText(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", share * 100);
  return text;
}

/// Space in which a buffer may be live at an instant of the launches.
bool isOnDevice(const fbs::BufferInfo &buffer) {
  return buffer.space() == fbs::Space::step;
}

Json peakJson(const fbs::Program &program) {
  PeakInstant peak = peakInstant(program);
  Json live = Json::array();
  for (const fbs::BufferInfo *buffer : peak.live)
    live.push_back({{"name", bufferText(*buffer, program)},
                    {"category", std::string(viewOf(buffer->category()))},
                    {"bytes", buffer->size()},
                    {"offset", buffer->offset()},
                    {"run", buffer->run()},
                    {"offloaded", buffer->offloaded()}});
  Json json = {{"launch", peak.launch}, {"bytes", peak.bytes}, {"live", live}};
  if (peak.launch < sizeOf(program.launches())) {
    const fbs::Launch &launch =
        *program.launches()->Get(static_cast<uint32_t>(peak.launch));
    json["node"] = std::string(viewOf(launch.node()));
    json["op"] = std::string(viewOf(launch.op()));
  }
  return json;
}

Json certificateOf(const Plan &plan, const PlanVariant &variant,
                   const fbs::Program &program) {
  uint64_t budget = budgetOf(plan, variant);
  return {{"name", std::string(viewOf(program.name()))},
          {"budget_bytes", budget > 0 ? Json(budget) : Json()},
          {"state_bytes", plan.memory().stateBytes},
          {"step_bytes", program.step_bytes()},
          {"step_bytes_bound", program.bound_bytes()},
          {"step_bytes_gap", gapOf(static_cast<double>(program.step_bytes()),
                                   static_cast<double>(program.bound_bytes()))},
          {"host_bytes", program.host_bytes()},
          {"host_bytes_bound", program.host_bound_bytes()},
          {"us", program.predicted_us()},
          {"us_bound", program.bound_us()},
          {"us_gap", gapOf(program.predicted_us(), program.bound_us())},
          {"peak", peakJson(program)}};
}

/// "'h' 32.0 KiB, 'x' 16.0 KiB and 7 more of 4.0 KiB".
std::string liveText(const PeakInstant &peak, const fbs::Program &program) {
  constexpr size_t shown = 6;
  std::string text;
  uint64_t rest = 0;
  for (size_t i = 0; i < peak.live.size(); ++i) {
    const fbs::BufferInfo &buffer = *peak.live[i];
    if (i >= shown) {
      rest += buffer.size();
      continue;
    }
    text += (i ? ", '" : "'") + bufferText(buffer, program) + "'" +
            (buffer.run() > 0 ? " (again)" : "") + " " + sizeText(buffer.size());
  }
  if (peak.live.size() > shown)
    text +=
        " and " + std::to_string(peak.live.size() - shown) + " more of " + sizeText(rest);
  return text;
}

} // namespace

std::pair<int64_t, int64_t> launchesOf(const fbs::BufferInfo &buffer,
                                       const fbs::Program &program) {
  int64_t end = std::max<int64_t>(1, sizeOf(program.launches())) - 1;
  int64_t first = std::clamp<int64_t>(buffer.first(), 0, end);
  return {first, std::clamp<int64_t>(buffer.last(), first, end)};
}

PeakInstant peakInstant(const fbs::Program &program) {
  size_t count = std::max<size_t>(1, sizeOf(program.launches()));
  std::vector<uint64_t> live(count);
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(i);
    auto [first, last] = launchesOf(buffer, program);
    for (int64_t t = first; isOnDevice(buffer) && t <= last; ++t)
      live[static_cast<size_t>(t)] += buffer.size();
  }
  auto most = std::max_element(live.begin(), live.end());
  PeakInstant peak{most - live.begin(), *most, {}};
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo *buffer = program.buffers()->Get(i);
    auto [first, last] = launchesOf(*buffer, program);
    if (isOnDevice(*buffer) && first <= peak.launch && peak.launch <= last &&
        buffer->size() > 0)
      peak.live.push_back(buffer);
  }
  std::sort(peak.live.begin(), peak.live.end(), [](const auto *left, const auto *right) {
    return std::pair(right->size(), left->offset()) <
           std::pair(left->size(), right->offset());
  });
  return peak;
}

uint64_t budgetOf(const Plan &plan, const PlanVariant &variant) {
  bool isOnlyOne = plan.variants().size() == 1;
  return isOnlyOne ? plan.raw().budget_bytes() : variant.budgetBytes;
}

bool hasName(std::string_view names, std::string_view part) {
  for (size_t at = names.find(part); at != std::string_view::npos;
       at = names.find(part, at + 1)) {
    size_t end = at + part.size();
    bool starts = at == 0 || names[at - 1] == '+' || names[at - 1] == ' ';
    bool ends = end == names.size() || names[end] == '+' || names[end] == ',';
    if (starts && ends)
      return true;
  }
  return false;
}

std::string bufferText(const fbs::BufferInfo &buffer, const fbs::Program &program) {
  std::string name(viewOf(buffer.name()));
  if (viewOf(buffer.category()) != "workspace" || sizeOf(program.launches()) == 0)
    return name;
  auto [first, last] = launchesOf(buffer, program);
  return name + " of " +
         std::string(
             viewOf(program.launches()->Get(static_cast<uint32_t>(first))->node()));
}

std::string nodeText(const fbs::Launch &launch) {
  constexpr size_t shown = 4;
  std::string_view nodes = viewOf(launch.node());
  size_t end = 0, count = 1;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i] == '+' && count++ == shown)
      end = i;
  if (count <= shown)
    return std::string(nodes);
  return std::string(nodes.substr(0, end)) + " and " + std::to_string(count - shown) +
         " more";
}

std::string launchText(const fbs::Program &program, int64_t launch) {
  std::string text = "launch " + std::to_string(launch) + " of " +
                     std::to_string(sizeOf(program.launches()));
  if (launch < 0 || launch >= sizeOf(program.launches()))
    return text;
  const fbs::Launch &at = *program.launches()->Get(static_cast<uint32_t>(launch));
  return text + " ('" + nodeText(at) + "': " + std::string(viewOf(at.op())) +
         (at.again() > 0 ? ", run again)" : ")");
}

Json certificates(const Plan &plan, const PlanVariant &variant) {
  Json list = Json::array();
  for (uint32_t index : variant.programs)
    list.push_back(certificateOf(plan, variant, *plan.raw().programs()->Get(index)));
  return list;
}

std::vector<std::string> certificateLines(const Plan &plan, const PlanVariant &variant) {
  std::vector<std::string> lines;
  uint64_t budget = budgetOf(plan, variant), state = plan.memory().stateBytes;
  for (uint32_t index : variant.programs) {
    const fbs::Program &program = *plan.raw().programs()->Get(index);
    std::string name(viewOf(program.name()));
    uint64_t step = program.step_bytes(), bound = program.bound_bytes();
    lines.push_back(
        name + ": state " + std::to_string(state) + " + step " + std::to_string(step) +
        " = " + std::to_string(state + step) + " bytes" +
        (budget > 0 ? " of a budget of " + std::to_string(budget) : ", no budget") +
        "; these live ranges need at least " + std::to_string(bound) + ", gap " +
        percentText(gapOf(static_cast<double>(step), static_cast<double>(bound))));
    lines.push_back(name + ": predicted " + timeText(program.predicted_us()) +
                    ", no plan within the budget below " + timeText(program.bound_us()) +
                    ", gap " +
                    percentText(gapOf(program.predicted_us(), program.bound_us())));
    PeakInstant peak = peakInstant(program);
    lines.push_back(name + ": most is live at " + launchText(program, peak.launch) +
                    ", " + sizeText(peak.bytes) + ": " + liveText(peak, program));
  }
  return lines;
}

} // namespace sluice::cli
