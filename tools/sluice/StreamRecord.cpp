#include "tools/sluice/StreamRecord.h"

#include "runtime/BestEvaluation.h"

#include <filesystem>
#include <fstream>

namespace sluice::cli {

namespace fs = std::filesystem;

static constexpr char formatName[] = "sluice-stream-1";

static std::string pathOf(const std::string &folder) {
  return (fs::path(folder) / "stream.json").string();
}

bool hasStream(const std::string &folder) {
  std::error_code error;
  return fs::exists(pathOf(folder), error);
}

Json StreamRecord::summary(const std::vector<std::string> &columns) const {
  const double sign = isHigherBetter(metric) ? 1 : -1;
  TaskMatrix higher = matrix;
  for (auto &row : higher)
    for (double &value : row)
      value *= sign;
  Json out = {
      {"tasks", reports}, {"columns", columns}, {"metric", metric}, {"matrix", matrix}};
  if (auto value = averageFigure(higher))
    out["acc"] = sign * *value;
  if (auto value = backwardTransfer(higher))
    out["backward_transfer"] = *value;
  if (auto value = meanForgetting(higher))
    out["forgetting"] = *value;
  return out;
}

Status StreamRecord::save(const std::string &folder) const {
  Json out = {{"format", formatName}, {"done", tasks},      {"metric", metric},
              {"matrix", matrix},     {"reports", reports}, {"checkpoint", checkpoint},
              {"replay", replay}};
  return writeWholeFile(pathOf(folder), out.dump(1) + "\n");
}

static Status readInto(const Json &in, StreamRecord &record) {
  try {
    record.tasks = in.at("done").get<std::vector<std::string>>();
    record.metric = in.at("metric").get<std::string>();
    record.matrix = in.at("matrix").get<TaskMatrix>();
    record.reports = in.at("reports").get<std::vector<Json>>();
    record.checkpoint = in.at("checkpoint").get<std::string>();
    record.replay = in.at("replay").get<std::string>();
  } catch (const Json::exception &error) {
    return Status::damaged(error.what());
  }
  bool fits = in.value("format", "") == formatName &&
              record.matrix.size() == record.tasks.size() &&
              record.reports.size() == record.tasks.size();
  return fits ? Status::success() : Status::damaged("its parts do not fit together");
}

Result<StreamRecord> loadStream(const std::string &folder,
                                const std::vector<std::string> &names) {
  StreamRecord record;
  if (!hasStream(folder))
    return record;
  std::ifstream file(pathOf(folder));
  Json in = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (in.is_discarded())
    return Status::damaged("'" + pathOf(folder) + "' is no JSON");
  if (Status status = readInto(in, record); !status.ok())
    return Status::damaged("'" + pathOf(folder) + "' is damaged: " + status.message);
  for (size_t i = 0; i < record.tasks.size(); ++i)
    if (i >= names.size() || names[i] != record.tasks[i])
      return Status::refused(
          "unknown task '" + (i < names.size() ? names[i] : std::string()) +
          "' in place " + std::to_string(i + 1) + " of --tasks: '" + record.tasks[i] +
          "' was learned there; name the tasks "
          "done in their order, and new ones behind");
  return record;
}

} // namespace sluice::cli
