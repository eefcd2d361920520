#include "tools/sluice/GuardFile.h"

#include "runtime/PlanFile.h"

#include <cinttypes>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

/// The checksum in the plan file's header.
std::string checksumOf(const Plan &plan) {
  uint64_t checksum = 0;
  constexpr size_t place = 24;
  if (plan.file().size() >= planHeaderBytes)
    std::memcpy(&checksum, plan.file().data() + place, sizeof checksum);
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, checksum);
  return text;
}

constexpr const char *figureKeys[] = {"difference", "half_interval", "f32_loss", "steps",
                                      "seeds"};

} // namespace

std::string guardPath(const std::string &planPath) {
  return std::filesystem::path(planPath).replace_extension(".precision.json").string();
}

Status writeGuard(const Plan &plan, Json figures) {
  figures["plan_checksum"] = checksumOf(plan);
  return writeWholeFile(guardPath(plan.path()), figures.dump(2) + "\n");
}

std::string guardText(const Json &figures) {
  double difference = figures["difference"].get<double>();
  char text[240];
  std::snprintf(text, sizeof text,
                "loss %.3g +- %.2g %s f32's %.5g, over the second half of %" PRId64
                " updates from %" PRId64 " seed%s (95%%)%s",
                std::abs(difference), figures["half_interval"].get<double>(),
                difference < 0 ? "below" : "above", figures["f32_loss"].get<double>(),
                figures["steps"].get<int64_t>(), figures["seeds"].get<int64_t>(),
                figures["seeds"].get<int64_t>() == 1 ? "" : "s",
                figures.value("seen", true) ? "" : ": no difference is seen");
  return text;
}

std::vector<std::string> guardLines(const Plan &plan, Json &out) {
  std::ifstream file(guardPath(plan.path()));
  if (plan.path().empty() || !file)
    return {};
  Json figures = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  bool isWhole = figures.is_object();
  for (const char *key : figureKeys)
    isWhole = isWhole && figures.contains(key) && figures[key].is_number();
  std::string name = std::filesystem::path(guardPath(plan.path())).filename().string();
  if (!isWhole)
    return {"measured: '" + name +
            "' cannot be read; run sluice verify --precision again"};
  if (figures.value("plan_checksum", "") != checksumOf(plan))
    return {"measured: '" + name +
            "' is of another plan; run sluice verify --precision again"};
  out = figures;
  return {"measured by sluice verify: " + guardText(figures)};
}

} // namespace sluice::cli
