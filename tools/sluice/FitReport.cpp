#include "tools/sluice/FitReport.h"

#include "passes/LaunchCosts.h"
#include "tools/sluice/FitTable.h"

#include <algorithm>

namespace sluice::cli {
namespace {

std::string bytesText(int64_t bytes) { return sizeText(static_cast<uint64_t>(bytes)); }

std::string percentText(const char *name, double share) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%.0f %%", name, 100 * share);
  return text;
}

int64_t sum(const std::vector<DeviceItem> &items) {
  int64_t bytes = 0;
  for (const DeviceItem &item : items)
    bytes += item.bytes;
  return bytes;
}

Json itemsJson(const std::vector<DeviceItem> &items) {
  Json list = Json::array();
  for (const DeviceItem &item : items)
    list.push_back({{"name", item.name}, {"bytes", item.bytes}});
  return list;
}

Json curveJson(const MemoryCurve &curve) {
  Json list = Json::array();
  for (const MemoryPoint &point : curve.points)
    list.push_back({{"budget_bytes", point.arenaBytes},
                    {"step_us", point.stepUs},
                    {"host_bytes", point.hostBytes}});
  return list;
}

Json sizeJson(const std::optional<LargestSize> &largest) {
  return largest ? Json(largest->size) : Json();
}

void addSizes(const FitAnswer &answer, size_t shape, Json &out) {
  FitSizes sizes = shape < answer.sizes.size() ? answer.sizes[shape] : FitSizes();
  out["largest_batch"] = sizeJson(sizes.batch);
  out["largest_batch_proved"] = sizes.batch && sizes.batch->isProved;
  out["longest_sequence"] = sizeJson(sizes.sequence);
  out["longest_sequence_proved"] = sizes.sequence && sizes.sequence->isProved;
}

Json shapesJson(const FitAnswer &answer) {
  Json list = Json::array();
  for (size_t i = 0; i < answer.curves.size(); ++i) {
    const MemoryCurve &curve = answer.curves[i];
    const MemoryPoint &chosen = answer.chosen(curve);
    Json row = {{"name", curve.name.empty() ? "plan" : curve.name},
                {"smallest_budget_bytes", curve.smallestBytes()},
                {"unconstrained_arena_bytes", curve.points.back().arenaBytes},
                {"arena_bytes", chosen.arenaBytes},
                {"host_bytes", chosen.hostBytes},
                {"step_us", chosen.stepUs},
                {"bound_by", answer.boundOf(chosen)}};
    addSizes(answer, i, row);
    row["curve"] = curveJson(curve);
    list.push_back(row);
  }
  return list;
}

bool meets(const VariantReport &variant) {
  return !variant.budgetBytes || variant.arenaBytes <= *variant.budgetBytes;
}

Json variantsJson(const FitAnswer &answer) {
  Json list = Json::array();
  for (const VariantReport &variant : answer.variants)
    list.push_back(
        {{"name", variant.name},
         {"variant", variant.rung},
         {"bucket", variant.bucket},
         {"memory_fraction", variant.memoryFraction},
         {"budget_bytes", variant.budgetBytes ? Json(*variant.budgetBytes) : Json()},
         {"fits", meets(variant)},
         {"arena_bytes", variant.arenaBytes},
         {"host_bytes", variant.hostBytes},
         {"step_us", variant.stepUs}});
  return list;
}

void printCurve(const FitAnswer &answer, const MemoryCurve &curve,
                const Console &console) {
  std::vector<std::vector<std::string>> rows = {
      {"budget of the arena", "step (predicted)", "slower by", "on the device"}};
  bool moves = std::any_of(curve.points.begin(), curve.points.end(),
                           [](const MemoryPoint &point) { return point.hostBytes > 0; });
  if (moves)
    rows[0].push_back("in the host's memory");
  double fastest = curve.points.back().stepUs;
  for (const MemoryPoint &point : curve.points) {
    char slower[16];
    std::snprintf(slower, sizeof slower, "%.1f %%", 100 * (point.stepUs / fastest - 1));
    bool fits = answer.budget && point.arenaBytes <= *answer.budget;
    rows.push_back({bytesText(point.arenaBytes) + (fits ? "  fits" : ""),
                    timeText(point.stepUs), slower,
                    bytesText(point.arenaBytes + answer.device.contextBytes())});
    if (moves)
      rows.back().push_back(bytesText(point.hostBytes));
  }
  if (!curve.name.empty())
    console.line("with the shapes '" + curve.name + "'");
  console.line(tableText(rows));
}

void printVariants(const FitAnswer &answer, const Console &console) {
  if (answer.variants.empty())
    return;
  std::vector<std::vector<std::string>> rows = {
      {"variant", "budget", "arena", "step (predicted)"}};
  bool moves =
      std::any_of(answer.variants.begin(), answer.variants.end(),
                  [](const VariantReport &variant) { return variant.hostBytes > 0; });
  if (moves)
    rows[0].push_back("in the host's memory");
  rows[0].push_back("");
  for (const VariantReport &variant : answer.variants) {
    std::string budget =
        variant.budgetBytes ? bytesText(*variant.budgetBytes) : std::string("none");
    std::vector<std::string> row = {variant.name, budget, bytesText(variant.arenaBytes),
                                    timeText(variant.stepUs)};
    if (moves)
      row.push_back(bytesText(variant.hostBytes));
    row.push_back(meets(variant) ? "fits" : "does not fit");
    rows.push_back(row);
  }
  console.line("all variants in one plan");
  console.line(tableText(rows));
}

void printSizes(const FitAnswer &answer, size_t shape, const Console &console) {
  std::string where = answer.curves[shape].name;
  where = where.empty() ? "" : " with the shapes '" + where + "'";
  auto sizeLine = [&](const std::string &what,
                      const std::optional<LargestSize> &largest) {
    if (largest)
      console.line(what + where + " " + std::to_string(largest->size) +
                   (largest->isProved || largest->size == 0
                        ? ""
                        : " (the largest tried; more may fit)"));
  };
  sizeLine("largest batch", answer.sizes[shape].batch);
  sizeLine("longest '" + answer.sequenceName + "'", answer.sizes[shape].sequence);
}

void printAnswer(const FitAnswer &answer, const Console &console) {
  int64_t smallest = answer.smallestBudget();
  if (!answer.budget) {
    console.line("smallest budget " + bytesText(smallest) +
                 "; the device's memory is not known, so give --memory to ask whether "
                 "it fits");
    return;
  }
  std::string text = *answer.fits() ? "fits in " : "does not fit in ";
  text += bytesText(*answer.budget) + " for the arena";
  for (const DeviceItem &item : answer.device.context)
    text += " + " + bytesText(item.bytes) + " " + item.name;
  console.line(text + "; smallest budget " + bytesText(smallest) + " (" +
               std::to_string(smallest) + " B)");
  for (size_t i = 0; i < answer.sizes.size(); ++i)
    printSizes(answer, i, console);
  console.line("host memory beside the device's " + bytesText(sum(answer.hostItems())));
}

} // namespace

bool FitAnswer::hasLadder() const {
  return ladder.size() > 1 || (!ladder.empty() && ladder.back() < 1);
}

size_t FitAnswer::largest() const {
  auto most = std::max_element(curves.begin(), curves.end(),
                               [](const MemoryCurve &a, const MemoryCurve &b) {
                                 return a.smallestBytes() < b.smallestBytes();
                               });
  return size_t(most - curves.begin());
}

int64_t FitAnswer::smallestBudget() const {
  return budgetWithShare(leastShare(), curves[largest()].smallestBytes());
}

std::optional<bool> FitAnswer::fits() const {
  if (!variants.empty())
    return std::all_of(variants.begin(), variants.end(), meets);
  if (!budget)
    return std::nullopt;
  return smallestBudget() <= *budget;
}

const MemoryPoint &FitAnswer::chosen(const MemoryCurve &curve) const {
  if (!budget)
    return curve.points.back();
  const MemoryPoint *fastest = curve.fastestWithin(*budget);
  return fastest ? *fastest : curve.points.front();
}

std::string FitAnswer::boundOf(const MemoryPoint &point) const {
  auto most =
      std::max_element(point.boundBy.begin(), point.boundBy.end(),
                       [](const auto &a, const auto &b) { return a.second < b.second; });
  return most == point.boundBy.end() ? "nothing" : most->first;
}

EnoughLink FitAnswer::enoughLink() const {
  const MemoryPoint &point = chosen(curves[largest()]);
  return sluice::enoughLink(point.programs, ranks, linksOf(device.rates));
}

std::vector<DeviceItem> FitAnswer::hostItems() const {
  int64_t batch = 0, moved = 0;
  for (const MemoryCurve &curve : curves) {
    batch = std::max(batch, curve.inputBytes);
    if (variants.empty())
      moved = std::max(moved, chosen(curve).hostBytes);
  }
  for (const VariantReport &variant : variants)
    moved = std::max(moved, variant.hostBytes);
  std::vector<DeviceItem> items = {{"batches of the loader", 2 * batch}};
  if (moved > 0)
    items.push_back({"tensors that leave the device", moved});
  return items;
}

void fillFitJson(const FitAnswer &answer, Json &out) {
  size_t largest = answer.largest();
  const MemoryCurve &curve = answer.curves[largest];
  const MemoryPoint &chosen = answer.chosen(curve);
  std::optional<bool> fits = answer.fits();
  out["fits"] = fits ? Json(*fits) : Json();
  out["smallest_budget_bytes"] = answer.smallestBudget();
  out["budget_bytes"] = answer.budget ? Json(*answer.budget) : Json();
  out["ranks"] = answer.ranks;
  addSizes(answer, largest, out);
  out["sequence_dimension"] =
      answer.sequenceName.empty() ? Json() : Json(answer.sequenceName);
  out["curve"] = curveJson(curve);
  int64_t arena = chosen.arenaBytes;
  double stepUs = chosen.stepUs;
  // What compile makes of all is no larger than what each could have.
  for (const VariantReport &variant : answer.variants)
    if (bool isFirst = &variant == &answer.variants.front();
        variant.rung == 0 && (isFirst || variant.arenaBytes > arena))
      arena = variant.arenaBytes, stepUs = variant.stepUs;
  out["arena_bytes"] = arena;
  out["step_us"] = stepUs;
  out["state_bytes"] = curve.stateBytes;
  out["unconstrained_arena_bytes"] = curve.points.back().arenaBytes;
  out["arena"] = Json::object();
  for (auto &[category, bytes] : curve.arena)
    out["arena"][category] = bytes;
  out["state"] = Json::object();
  for (auto &[role, bytes] : curve.state)
    out["state"][role] = bytes;
  out["peak"] = curve.peak;
  const DeviceProfile &device = answer.device;
  out["device"] = {
      {"name", device.name},
      {"memory_bytes", device.memoryBytes > 0 ? Json(device.memoryBytes) : Json()},
      {"context", itemsJson(device.context)}};
  out["device_total_bytes"] = arena + device.contextBytes();
  out["host"] = itemsJson(answer.hostItems());
  out["host_bytes"] = sum(answer.hostItems());
  out["bound_by"] = answer.boundOf(chosen);
  out["bound_shares"] = Json::object();
  for (auto &[name, share] : chosen.boundBy)
    out["bound_shares"][name] = share;
  out["link_busy"] = chosen.linkBusy;
  out["launches"] = curve.launches;
  out["shapes"] = shapesJson(answer);
  out["variants"] = variantsJson(answer);
  out["enough_link"] = Json();
  if (answer.ranks > 1)
    out["enough_link"] = linkJson(answer.enoughLink());
  out["notes"] = answer.notes;
  out["seconds"] = answer.seconds;
}

void printFit(const FitAnswer &answer, const Console &console) {
  for (const MemoryCurve &curve : answer.curves)
    printCurve(answer, curve, console);
  printVariants(answer, console);
  printAnswer(answer, console);
  const MemoryCurve &curve = answer.curves[answer.largest()];
  const MemoryPoint &chosen = answer.chosen(curve);
  std::string shares;
  for (auto &[name, share] : chosen.boundBy)
    shares += (shares.empty() ? "" : ", ") + percentText((name + " ").c_str(), share);
  console.line("the step is bound by " + answer.boundOf(chosen) + " (" + shares +
               " of its time)");
  if (chosen.linkBusy > 0)
    console.line(
        percentText("copies between device and host run during ", chosen.linkBusy) +
        " of the step");
  console.line("where nothing runs again, the peak is in " + curve.peak);
  for (const std::string &note : answer.notes)
    console.line("note: " + note);
  if (answer.ranks > 1)
    console.line(enoughText(answer.enoughLink()));
}

} // namespace sluice::cli
