#pragma once
// What `sluice fit` is asked: options, and the spec and profile they come to.

#include "ir/DeviceProfile.h"
#include "ir/TrainingSpec.h"
#include "tools/sluice/Cli.h"

#include <optional>

namespace sluice::cli {

struct FitArguments {
  std::string model, spec, svg, sequence;
  /// Lists with commas ask for a table.
  std::string memory, device = "cpu", ranks, zero;
  std::vector<std::string> sets, shapes;
  int threads = 0;
  int64_t points = 12;
  bool noSearch = false;
};

/// One of each list; empty: as the spec says.
struct FitChoice {
  std::string device, ranks, zero;

  bool operator==(const FitChoice &) const = default;
};

struct FitQuestion {
  TrainingSpec spec; ///< without a budget
  DeviceProfile device;
  /// Bytes of the arena, as many as are asked for; nothing where none is known.
  std::vector<std::optional<int64_t>> budgets;
};

/// The parts of a list with commas; of an empty text one empty part.
std::vector<std::string> listOf(const std::string &text);

/// Prints what is wrong and returns the exit code, or 0.
int readQuestion(const FitArguments &arguments, const FitChoice &choice,
                 const Console &console, FitQuestion &question);

} // namespace sluice::cli
