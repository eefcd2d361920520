#pragma once
// `sluice fit` over lists: devices, numbers of ranks, what they share out, and budgets.

#include "codegen/StepTimes.h"
#include "tools/sluice/FitQuestion.h"

namespace sluice::cli {

/// One combination.
struct FitRow {
  DeviceProfile device;
  int64_t ranks = 1;
  std::string zero;              ///< as asked for; empty: as the spec says
  std::optional<int64_t> budget; ///< of the arena of one rank
  int64_t smallestBytes = 0, arenaBytes = 0;
  int64_t samples = 0; ///< of an update, over all ranks; 0: not known
  UpdateTimes times;
  std::optional<EnoughLink> link; ///< with several ranks

  bool fits() const { return !budget || smallestBytes <= *budget; }
  double samplesPerSecond() const {
    return times.us > 0 ? double(samples) * 1e6 / times.us : 0;
  }
};

struct FitTable {
  std::string model;
  std::vector<FitRow> rows;
  std::vector<std::string> notes;
  double seconds = 0;
};

bool wantsTable(const FitArguments &arguments);
int runFitTable(const FitArguments &arguments, Console &console);

/// "a link of 255 GB/s and 10 us", and that between nodes where ranks lie on several.
std::string linksText(int64_t ranks, const DeviceProfile &device);
/// "the link is enough (21 GB/s would be)" or what would be.
std::string enoughText(const EnoughLink &enough);
Json linkJson(const EnoughLink &enough);

void fillTableJson(const FitTable &table, Json &out);
void printTable(const FitTable &table, const Console &console);
/// Samples a second by ranks: a line for each device, budget and choice of `zero`.
std::string tableSvg(const FitTable &table);

} // namespace sluice::cli
