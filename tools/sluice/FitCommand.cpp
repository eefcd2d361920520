// sluice fit: will it fit, how large can it be, and what does less memory cost.

#include "frontend/DeviceReader.h"
#include "frontend/SpecReader.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/FitModel.h"
#include "tools/sluice/FitPicture.h"

#include <chrono>

namespace sluice::cli {
namespace {

struct FitArguments {
  std::string model, spec, memory, svg, sequence, device = "cpu";
  std::vector<std::string> sets, shapes;
  int threads = 0, ranks = 1;
  int64_t points = 12;
  bool noSearch = false;
};

std::string bytesText(int64_t bytes) { return sizeText(static_cast<uint64_t>(bytes)); }

struct Answer {
  std::optional<int64_t> budget; // for the arena
  MemoryCurve curve;
  std::optional<LargestSize> batch, sequence;
  std::string batchNote, sequenceNote, sequenceName;
};

class FitRun {
public:
  FitRun(const FitArguments &arguments, Console &console)
      : arguments(arguments), console(console) {}

  int run() {
    auto start = std::chrono::steady_clock::now();
    std::optional<TrainingSpec> spec = readArguments();
    if (!spec)
      return code;
    FitModel model(arguments.model, *spec, device, arguments.points);
    if (Status status = model.curve(answer.curve); !status.ok())
      return console.fail(status);
    if (answer.budget && !arguments.noSearch)
      search(model);
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    fillJson(taken.count());
    specNotes.insert(specNotes.begin(), model.report().notes.begin(),
                     model.report().notes.end());
    console.result["notes"] = notes();
    if (!arguments.svg.empty())
      if (Status status = writeWholeFile(arguments.svg, picture()); !status.ok())
        return console.fail(status);
    print();
    console.finish();
    bool fits = answer.budget && answer.curve.smallestBytes() <= *answer.budget;
    return !answer.budget || fits ? 0 : static_cast<int>(StatusCode::doesNotFit);
  }

private:
  std::optional<TrainingSpec> readArguments() {
    SpecResult read = readSpec(arguments.spec, arguments.sets);
    DeviceResult profile = readDevice(arguments.device);
    std::vector<std::string> errors = read.errors;
    errors.insert(errors.end(), profile.errors.begin(), profile.errors.end());
    if (!errors.empty()) {
      code = console.refuse(errors);
      return std::nullopt;
    }
    device = *profile.profile;
    TrainingSpec spec = *read.spec;
    std::optional<std::string> problem =
        parseShapes(arguments.shapes, spec.shapes, spec.dimensions);
    if (!arguments.memory.empty()) {
      answer.budget = parseSize(arguments.memory);
      if (!answer.budget)
        problem =
            "--memory '" + arguments.memory + "': expected bytes or a size such as 8GiB";
    } else if (device.memoryBytes > 0) {
      answer.budget = std::max<int64_t>(0, device.memoryBytes - device.contextBytes());
    }
    if (arguments.ranks != 1)
      problem = "--ranks " + std::to_string(arguments.ranks) +
                " is not yet supported; plans have 1 rank";
    if (problem) {
      code = console.fail(Status::usage(*problem));
      return std::nullopt;
    }
    if (arguments.threads > 0)
      spec.threads = arguments.threads;
    else if (spec.threads == 0 && device.target != "cpu")
      spec.threads = 1; // the answer does not depend on the machine that gives it
    spec.budgetBytes.reset();
    if (spec.buckets.size() > 1)
      specNotes.push_back("of the spec's shapes only the first are planned");
    if (!spec.offload.empty() && spec.offload != "none")
      specNotes.push_back("'memory.offload' is not planned by fit yet: with it less is "
                          "needed on the device, at another price");
    return spec;
  }

  void search(FitModel &model) {
    constexpr int64_t most = 1 << 20;
    auto find = [&](int64_t start, auto bytesOf, std::optional<LargestSize> &found,
                    std::string &note) {
      LargestSize largest;
      const MemoryCurve &curve = answer.curve;
      SizeSearch search{start, curve.smallestBytes(), curve.stateBytes, most,
                        *answer.budget};
      Status status = findLargest(search, bytesOf, largest);
      note = status.ok() ? largest.limit : status.message;
      if (status.ok())
        found = largest;
    };
    if (model.batch() > 0)
      find(
          model.batch(),
          [&](int64_t size, int64_t &bytes) { return model.bytesAtBatch(size, bytes); },
          answer.batch, answer.batchNote);
    answer.sequenceName = model.sequenceName(arguments.sequence);
    if (answer.sequenceName.empty())
      answer.sequenceNote = arguments.sequence.empty()
                                ? "no single dimension besides the batch is symbolic"
                                : "no input has a dimension '" + arguments.sequence + "'";
    else
      find(
          model.sequence(answer.sequenceName),
          [&](int64_t size, int64_t &bytes) {
            return model.bytesAtSequence(answer.sequenceName, size, bytes);
          },
          answer.sequence, answer.sequenceNote);
  }

  std::string bound() const {
    auto most = std::max_element(
        answer.curve.boundBy.begin(), answer.curve.boundBy.end(),
        [](const auto &a, const auto &b) { return a.second < b.second; });
    return most == answer.curve.boundBy.end() ? "nothing" : most->first;
  }

  /// The batch is read ahead into two buffers; weights are mapped from their file.
  std::vector<DeviceItem> hostItems() const {
    return {{"batches of the loader", 2 * answer.curve.inputBytes}};
  }

  void fillJson(double seconds) {
    Json &out = console.result;
    const MemoryCurve &curve = answer.curve;
    const MemoryPoint *chosen =
        answer.budget ? curve.fastestWithin(*answer.budget) : &curve.points.back();
    out["fits"] = answer.budget ? Json(chosen != nullptr) : Json();
    out["smallest_budget_bytes"] = curve.smallestBytes();
    out["budget_bytes"] = answer.budget ? Json(*answer.budget) : Json();
    auto size = [](const std::optional<LargestSize> &largest) {
      return largest ? Json(largest->size) : Json();
    };
    out["largest_batch"] = size(answer.batch);
    out["largest_batch_proved"] = answer.batch && answer.batch->isProved;
    out["longest_sequence"] = size(answer.sequence);
    out["longest_sequence_proved"] = answer.sequence && answer.sequence->isProved;
    out["sequence_dimension"] =
        answer.sequenceName.empty() ? Json() : Json(answer.sequenceName);
    out["curve"] = Json::array();
    for (const MemoryPoint &point : curve.points)
      out["curve"].push_back(
          {{"budget_bytes", point.arenaBytes}, {"step_us", point.stepUs}});
    int64_t arena = chosen ? chosen->arenaBytes : curve.smallestBytes();
    out["arena_bytes"] = arena;
    out["step_us"] = chosen ? chosen->stepUs : curve.points.front().stepUs;
    out["state_bytes"] = curve.stateBytes;
    out["unconstrained_arena_bytes"] = curve.points.back().arenaBytes;
    out["arena"] = Json::object();
    for (auto &[category, bytes] : curve.arena)
      out["arena"][category] = bytes;
    out["peak"] = curve.peak;
    out["device"] = {
        {"name", device.name},
        {"memory_bytes", device.memoryBytes > 0 ? Json(device.memoryBytes) : Json()},
        {"context", Json::array()}};
    for (const DeviceItem &item : device.context)
      out["device"]["context"].push_back({{"name", item.name}, {"bytes", item.bytes}});
    out["device_total_bytes"] = arena + device.contextBytes();
    int64_t host = 0;
    out["host"] = Json::array();
    for (const DeviceItem &item : hostItems()) {
      host += item.bytes;
      out["host"].push_back({{"name", item.name}, {"bytes", item.bytes}});
    }
    out["host_bytes"] = host;
    out["bound_by"] = bound();
    out["bound_shares"] = Json::object();
    for (auto &[name, share] : curve.boundBy)
      out["bound_shares"][name] = share;
    out["launches"] = curve.launches;
    out["seconds"] = seconds;
  }

  void print() const {
    const MemoryCurve &curve = answer.curve;
    std::vector<std::vector<std::string>> rows = {
        {"budget of the arena", "step (predicted)", "slower by", "on the device"}};
    double fastest = curve.points.back().stepUs;
    for (const MemoryPoint &point : curve.points) {
      char slower[16];
      std::snprintf(slower, sizeof slower, "%.1f %%", 100 * (point.stepUs / fastest - 1));
      bool fits = answer.budget && point.arenaBytes <= *answer.budget;
      rows.push_back({bytesText(point.arenaBytes) + (fits ? "  fits" : ""),
                      timeText(point.stepUs), slower,
                      bytesText(point.arenaBytes + device.contextBytes())});
    }
    console.line(tableText(rows));
    printAnswer();
    std::string shares;
    for (auto &[name, share] : curve.boundBy) {
      char part[48];
      std::snprintf(part, sizeof part, "%s %.0f %%", name.c_str(), 100 * share);
      shares += (shares.empty() ? "" : ", ") + std::string(part);
    }
    console.line("the step is bound by " + bound() + " (" + shares + " of its time)");
    console.line("where nothing runs again, the peak is in " + curve.peak);
    for (const std::string &note : notes())
      console.line("note: " + note);
  }

  void printAnswer() const {
    const MemoryCurve &curve = answer.curve;
    if (!answer.budget) {
      console.line("smallest budget " + bytesText(curve.smallestBytes()) +
                   "; the device's memory is not known, so give --memory to ask whether "
                   "it fits");
      return;
    }
    std::string text =
        curve.smallestBytes() <= *answer.budget ? "fits in " : "does not fit in ";
    text += bytesText(*answer.budget) + " for the arena";
    for (const DeviceItem &item : device.context)
      text += " + " + bytesText(item.bytes) + " " + item.name;
    console.line(text + "; smallest budget " + bytesText(curve.smallestBytes()) + " (" +
                 std::to_string(curve.smallestBytes()) + " B)");
    auto sizeLine = [&](const char *what, const std::optional<LargestSize> &largest) {
      if (largest)
        console.line(std::string(what) + " " + std::to_string(largest->size) +
                     (largest->isProved || largest->size == 0
                          ? ""
                          : " (the largest tried; more may fit)"));
    };
    sizeLine("largest batch", answer.batch);
    sizeLine(("longest '" + answer.sequenceName + "'").c_str(), answer.sequence);
    int64_t host = 0;
    for (const DeviceItem &item : hostItems())
      host += item.bytes;
    console.line("host memory beside the device's " + bytesText(host));
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> lines = specNotes;
    if (device.target != "cpu")
      lines.push_back("planned with the kernels of 'cpu': workspaces of " + device.name +
                      "'s kernels may differ, and its times are not measured yet");
    if (!answer.batchNote.empty())
      lines.push_back("no larger batch: " + answer.batchNote);
    if (!answer.sequenceNote.empty())
      lines.push_back("no longer sequence: " + answer.sequenceNote);
    return lines;
  }

  std::string picture() const {
    return fitSvg(answer.curve, answer.budget.value_or(0), arguments.model, device.name);
  }

  const FitArguments &arguments;
  Console &console;
  DeviceProfile device;
  Answer answer;
  std::vector<std::string> specNotes;
  int code = 0;
};

} // namespace

Command addFit(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App *app = parent.add_subcommand(
      "fit", "Say whether a training step fits in memory, and what less memory costs");
  app->add_option("model", arguments->model, "ONNX file; its weights may be absent")
      ->required();
  app->add_option("--spec", arguments->spec, "training spec (YAML)");
  app->add_option("--set", arguments->sets, "KEY=VALUE over the spec");
  app->add_option("--shape", arguments->shapes, "INPUT=4x18x1024, or DIMENSION=32");
  app->add_option("--memory", arguments->memory,
                  "budget of the arena, such as 8GiB; default: the device's memory less "
                  "what else lies there");
  app->add_option("--device", arguments->device,
                  "cpu, a100-40, a100-80, v100-32, rtx3090, h100, h200, b200, or a file");
  app->add_option("--sequence", arguments->sequence,
                  "the dimension whose longest size is wanted; default: the only "
                  "symbolic one besides the batch");
  app->add_option("--threads", arguments->threads, "workers");
  app->add_option("--ranks", arguments->ranks, "1");
  app->add_option("--points", arguments->points,
                  "plans between the smallest and the fastest");
  app->add_flag("--no-search", arguments->noSearch,
                "no largest batch and longest sequence");
  app->add_option("--svg", arguments->svg, "picture of budget against predicted time");
  app->footer("Example: sluice fit model.onnx --spec train.yaml --device a100-80");
  return {app, [arguments, &console] { return FitRun(*arguments, console).run(); }};
}

} // namespace sluice::cli
