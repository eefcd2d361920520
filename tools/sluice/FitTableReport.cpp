#include "passes/LaunchCosts.h"
#include "tools/sluice/FitTable.h"

#include <cmath>

namespace sluice::cli {
namespace {

std::string rateText(double bytesPerSecond) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g GB/s", bytesPerSecond / 1e9);
  return text;
}

std::string linkText(const Link &link) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g us", link.latencyUs);
  return std::isinf(link.bytesPerSecond) ? std::string(text) + " at a higher rate"
                                         : rateText(link.bytesPerSecond) + " and " + text;
}

std::string percentText(double share) {
  char text[24];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

std::string bytesText(int64_t bytes) { return sizeText(static_cast<uint64_t>(bytes)); }

std::string perSecondText(const FitRow &row) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", row.samplesPerSecond());
  return row.samples > 0 ? text : "";
}

/// "needs 21 GB/s", "has enough (21 GB/s)".
std::string shortText(const EnoughLink &enough) {
  std::string where = enough.between ? " between nodes" : "";
  if (enough.isThere)
    return "is enough" + where;
  if (enough.isNone)
    return "none is enough" + where;
  if (enough.needsLatency)
    return "needs " + linkText(enough.link) + where;
  return "needs " + rateText(enough.link.bytesPerSecond) + where;
}

Json rowJson(const FitRow &row) {
  Json shares = Json::object();
  for (const auto &[cause, share] : row.times.shares)
    shares[cause] = share;
  auto link = row.times.shares.find("link");
  return {{"device", row.device.name},
          {"ranks", row.ranks},
          {"zero", row.zero.empty() ? Json() : Json(row.zero)},
          {"budget_bytes", row.budget ? Json(*row.budget) : Json()},
          {"fits", row.budget ? Json(row.fits()) : Json()},
          {"smallest_budget_bytes", row.smallestBytes},
          {"arena_bytes", row.arenaBytes},
          {"device_total_bytes", row.arenaBytes + row.device.contextBytes()},
          {"step_us", row.times.us},
          {"samples_per_second", row.samples > 0 ? Json(row.samplesPerSecond()) : Json()},
          {"bound_by", row.times.boundBy()},
          {"bound_shares", shares},
          {"wait_share", link == row.times.shares.end() ? 0.0 : link->second},
          {"enough_link", row.link ? linkJson(*row.link) : Json()}};
}

} // namespace

std::string linksText(int64_t ranks, const DeviceProfile &device) {
  LinkTopology links = linksOf(device.rates);
  std::string text = "a link of " + linkText(links.within);
  if (spansNodes(ranks, links))
    text += ", between nodes of " + std::to_string(links.perNode) + " ranks " +
            linkText(links.between);
  return text + " ('ranks' and 'nodes' of the device)";
}

std::string enoughText(const EnoughLink &enough) {
  std::string which = enough.between ? "the link between nodes" : "the link";
  std::string least =
      enough.needsLatency ? linkText(enough.link) : rateText(enough.link.bytesPerSecond);
  if (enough.isThere)
    return which + " is enough: with " + least +
           " launches would wait for a twentieth of the step";
  if (enough.isNone)
    return which + " may be as fast as it will: launches wait for more than a twentieth "
                   "of the step behind the others";
  return which + " is too slow: launches wait for more than a twentieth of the step, " +
         least + " would be enough";
}

Json linkJson(const EnoughLink &enough) {
  bool any = std::isinf(enough.link.bytesPerSecond);
  return {{"between_nodes", enough.between},
          {"is_there", enough.isThere},
          {"bytes_per_second", any ? Json() : Json(enough.link.bytesPerSecond)},
          {"latency_us", enough.link.latencyUs},
          {"needs_latency", enough.needsLatency},
          {"none", enough.isNone}};
}

void fillTableJson(const FitTable &table, Json &out) {
  out["table"] = Json::array();
  for (const FitRow &row : table.rows)
    out["table"].push_back(rowJson(row));
  out["notes"] = table.notes;
  out["seconds"] = table.seconds;
}

void printTable(const FitTable &table, const Console &console) {
  bool hasZero = false, hasBudget = false;
  for (const FitRow &row : table.rows) {
    hasZero |= !row.zero.empty();
    hasBudget |= row.budget.has_value();
  }
  std::vector<std::string> head = {"device", "ranks"};
  if (hasZero)
    head.push_back("zero");
  if (hasBudget)
    head.push_back("budget");
  for (const char *column :
       {"arena of a rank", "step (predicted)", "samples/s", "bound by", "waits", "link"})
    head.push_back(column);
  std::vector<std::vector<std::string>> lines = {head};
  for (const FitRow &row : table.rows) {
    std::vector<std::string> line = {row.device.name, std::to_string(row.ranks)};
    if (hasZero)
      line.push_back(row.zero);
    if (hasBudget)
      line.push_back(row.budget ? bytesText(*row.budget) : "");
    line.push_back(bytesText(row.arenaBytes) + (row.fits() ? "" : "  does not fit"));
    line.push_back(timeText(row.times.us));
    line.push_back(perSecondText(row));
    std::string bound = row.times.boundBy();
    auto wait = row.times.shares.find("link");
    line.push_back(bound + " " + percentText(row.times.shares.at(bound)));
    line.push_back(percentText(wait == row.times.shares.end() ? 0 : wait->second));
    line.push_back(row.link ? shortText(*row.link) : "");
    lines.push_back(line);
  }
  console.line(tableText(lines));
  console.line("waits: of the step, for sums over ranks; a link is enough where that is "
               "at most a twentieth");
  for (const std::string &note : table.notes)
    console.line("note: " + note);
}

} // namespace sluice::cli
