#pragma once
// What the commands share: where results and messages go, and how a command is added.

#include "runtime/Status.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::cli {

using Json = nlohmann::ordered_json;

/// Results go to standard output (as one JSON object with --json, else as text), messages
/// to standard error.
class Console {
public:
  bool json = false;

  /// The object --json prints at the end.
  Json result = Json::object();

  /// A line of text for people; nothing with --json.
  void line(const std::string &text) const;
  /// A line on standard error.
  void message(const std::string &text) const;
  /// Prints "error: ..." and returns the exit code of `status`.
  int fail(const Status &status) const;
  int refuse(const std::vector<std::string> &problems) const;
  /// Prints the object if --json; returns 0.
  int finish() const;
};

/// A subcommand: its function runs when it was chosen and returns the exit code.
using Action = std::function<int()>;
struct Command {
  CLI::App *app;
  Action action;
};

Command addImport(CLI::App &parent, Console &console);
Command addCompile(CLI::App &parent, Console &console);
Command addTrain(CLI::App &parent, Console &console);
Command addConsolidate(CLI::App &parent, Console &console);
Command addEval(CLI::App &parent, Console &console);
Command addInfer(CLI::App &parent, Console &console);
Command addCheck(CLI::App &parent, Console &console);
Command addShow(CLI::App &parent, Console &console);
Command addExplain(CLI::App &parent, Console &console);
Command addExport(CLI::App &parent, Console &console);
Command addFit(CLI::App &parent, Console &console);
Command addCalibrate(CLI::App &parent, Console &console);
Command addVerify(CLI::App &parent, Console &console);
Command addProbe(CLI::App &parent, Console &console);
Command addSchema(CLI::App &parent, Console &console);

/// Writes a file whole or not at all.
Status writeWholeFile(const std::string &path, const std::string &text);

/// "12.3 MiB"; exact bytes below 10 KiB.
std::string sizeText(uint64_t bytes);
/// "23.1 us", "4203 us", "12.3 ms".
std::string timeText(double us);

/// Rows of equal columns, the first left-aligned, the others right-aligned.
std::string tableText(const std::vector<std::vector<std::string>> &rows);

/// "1x28x28" -> {1, 28, 28}; nothing if it is no shape.
std::optional<std::vector<int64_t>> parseShape(const std::string &text);

/// "NAME=4x18x1024" options into the map; an error message for the first that is none.
std::optional<std::string>
parseShapes(const std::vector<std::string> &options,
            std::map<std::string, std::vector<int64_t>> &shapes,
            std::map<std::string, int64_t> &dimensions);

} // namespace sluice::cli
