#pragma once
// What `sluice fit` has found, as text and as JSON.

#include "codegen/Fit.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// How large a shape may be within the budget.
struct FitSizes {
  std::optional<LargestSize> batch, sequence;
  std::string batchNote, sequenceNote; // why there is none
};

struct FitAnswer {
  DeviceProfile device;
  std::optional<int64_t> budget;   // for the arena
  std::vector<MemoryCurve> curves; // by shape
  std::vector<FitSizes> sizes;     // by shape, where they are sought
  std::vector<double> ladder;
  int64_t ranks = 1;
  /// Of the plan that compile makes for all shapes and rungs; empty where there is one.
  std::vector<VariantReport> variants;
  std::string sequenceName;
  std::vector<std::string> notes;
  double seconds = 0;

  bool hasLadder() const;
  /// Part of the budget that the smallest rung has.
  double leastShare() const { return hasLadder() ? ladder.back() : 1; }
  /// The shape that needs most.
  size_t largest() const;
  /// That all shapes and rungs meet.
  int64_t smallestBudget() const;
  /// Nothing where no budget is known.
  std::optional<bool> fits() const;
  /// The fastest plan of a shape within the budget; else its smallest.
  const MemoryPoint &chosen(const MemoryCurve &curve) const;
  std::string boundOf(const MemoryPoint &point) const;
  /// With several ranks.
  EnoughLink enoughLink() const;
  /// The batch is read ahead into two buffers; weights are mapped from their file.
  std::vector<DeviceItem> hostItems() const;
};

void fillFitJson(const FitAnswer &answer, Json &out);
void printFit(const FitAnswer &answer, const Console &console);

} // namespace sluice::cli
