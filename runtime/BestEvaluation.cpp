#include "runtime/BestEvaluation.h"

#include "runtime/AtomicFile.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace sluice {

bool isHigherBetter(std::string_view metric) {
  return metric != "loss" && metric != "perplexity";
}

bool BestEvaluation::add(double value, int64_t updates) {
  bool isBetter = !std::isnan(value) &&
                  (!best || (isHigherBetter(metricName) ? value > *best : value < *best));
  if (!isBetter) {
    ++since;
    return false;
  }
  best = value;
  bestUpdates = updates;
  since = 0;
  return true;
}

Status BestEvaluation::save(const std::string &path) const {
  char text[160];
  std::snprintf(text, sizeof text, " %.17g %lld %lld\n", best.value_or(std::nan("")),
                static_cast<long long>(bestUpdates), static_cast<long long>(since));
  std::string line = metricName + text;
  AtomicFile file(path);
  Status status = file.open();
  if (status.ok())
    status = file.write(line.data(), line.size());
  return status.ok() ? file.commit() : status;
}

Status BestEvaluation::load(const std::string &path) {
  std::ifstream in(path);
  if (!in)
    return Status::success();
  std::string name, value;
  int64_t updates = 0, evaluations = 0;
  if (!(in >> name >> value >> updates >> evaluations) || updates < 0 || evaluations < 0)
    return Status::damaged("'" + path +
                           "' is damaged; remove it to judge from the next evaluation");
  if (name != metricName)
    return Status::refused("'" + path + "' is about the metric '" + name +
                           "', expected '" + metricName +
                           "'; name that metric, or remove the file to start anew");
  char *end = nullptr;
  double number = std::strtod(value.c_str(), &end);
  if (*end != '\0')
    return Status::damaged("'" + path +
                           "' is damaged; remove it to judge from the next evaluation");
  best = std::isnan(number) ? std::nullopt : std::optional(number);
  bestUpdates = updates;
  since = evaluations;
  return Status::success();
}

} // namespace sluice
