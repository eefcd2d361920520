// sluice calibrate: measures this machine into a device profile.

#include "frontend/DeviceReader.h"
#include "tools/sluice/Calibration.h"
#include "tools/sluice/Cli.h"

#include <fstream>
#include <thread>
#include <unistd.h>

namespace sluice::cli {
namespace {

struct CalibrateArguments {
  std::string out, name = "cpu";
  int threads = 0;
  double seconds = 0.5;
};

std::string fieldOf(const char *path, const std::string &key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0)
      return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

/// Resident bytes of this process: what a program takes beside its arena.
int64_t residentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int runCalibrate(const CalibrateArguments &arguments, Console &console) {
  DeviceProfile profile;
  profile.name = arguments.name;
  profile.memoryBytes =
      int64_t(::sysconf(_SC_PHYS_PAGES)) * int64_t(::sysconf(_SC_PAGESIZE));
  profile.context = {{"program and libraries", residentBytes()}};
  CalibrationOptions options;
  options.threads = arguments.threads > 0
                        ? arguments.threads
                        : std::max(1, int(std::thread::hardware_concurrency()));
  options.seconds = arguments.seconds;
  options.progress = [&](const std::string &text) { console.message(text); };
  std::vector<CalibrationError> errors;
  if (Status status = calibrate(options, profile, errors); !status.ok())
    return console.fail(status);

  std::string comment = "Measured by sluice calibrate on " +
                        fieldOf("/proc/cpuinfo", "model name") + ", " +
                        std::to_string(options.threads) +
                        " threads.\nStep times, measured and explained:\n";
  std::vector<std::vector<std::string>> rows = {
      {"network", "threads", "measured us", "explained us", "ratio"}};
  console.result["networks"] = Json::array();
  for (const CalibrationError &error : errors) {
    char ratio[16];
    std::snprintf(ratio, sizeof ratio, "%.2f", error.predictedUs / error.measuredUs);
    rows.push_back({error.network, std::to_string(error.threads),
                    std::to_string(int64_t(error.measuredUs)),
                    std::to_string(int64_t(error.predictedUs)), ratio});
    console.result["networks"].push_back({{"network", error.network},
                                          {"threads", error.threads},
                                          {"measured_us", error.measuredUs},
                                          {"predicted_us", error.predictedUs}});
  }
  std::string text = deviceText(profile, comment + tableText(rows));
  console.result["profile"] = text;
  if (arguments.out.empty()) {
    console.line(text);
    return console.finish();
  }
  if (Status status = writeWholeFile(arguments.out, text); !status.ok())
    return console.fail(status);
  console.line(tableText(rows));
  console.line("wrote " + arguments.out + "; give it to compile and fit with --device");
  return console.finish();
}

} // namespace

Command addCalibrate(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App *app = parent.add_subcommand(
      "calibrate", "Measure this machine into a device profile, which predictions use");
  app->add_option("-o,--out", arguments->out, "the profile (YAML); default: printed");
  app->add_option("--name", arguments->name, "name of the device");
  app->add_option("--threads", arguments->threads,
                  "the most workers; default: all cores");
  app->add_option("--seconds", arguments->seconds,
                  "of measuring for each network and number of threads");
  app->footer(
      "Example: sluice calibrate -o here.yaml && sluice compile model.onnx --spec "
      "train.yaml --device here.yaml -o model.plan");
  return {app, [arguments, &console] { return runCalibrate(*arguments, console); }};
}

} // namespace sluice::cli
