#include "passes/planning/MemoryPlanner.h"

#include "passes/planning/GreedyPlacement.h"
#include "passes/planning/PlacementModel.h"
#include "passes/planning/PlacementPromotion.h"
#include "passes/planning/PlacementSearch.h"
#include "passes/planning/PlacementSwaps.h"

#include <algorithm>

namespace sluice {
namespace {

struct KeyName {
  PlacementKey key;
  const char *name;
};
constexpr KeyName keys[] = {{PlacementKey::Lifetime, "lifetime"},
                            {PlacementKey::Area, "area"},
                            {PlacementKey::Size, "size"},
                            {PlacementKey::Start, "start"}};

struct GapOrder {
  PlacementKey key;
  GapRule rule;
  const char *name;
};
/// The best on large random problems come first, as the pair budget may end the list
/// there.
constexpr GapOrder gapOrders[] = {
    {PlacementKey::Size, GapRule::Lowest, "first fit by size"},
    {PlacementKey::Area, GapRule::Smallest, "best fit by area"},
    {PlacementKey::Area, GapRule::Lowest, "first fit by area"},
    {PlacementKey::Lifetime, GapRule::Smallest, "best fit by lifetime"},
    {PlacementKey::Lifetime, GapRule::Lowest, "first fit by lifetime"},
    {PlacementKey::Size, GapRule::Smallest, "best fit by size"},
    {PlacementKey::Start, GapRule::Smallest, "best fit by start"},
    {PlacementKey::Start, GapRule::Lowest, "first fit by start"}};

/// Overlapping pairs visited by all gap-fitting orders together; orders beyond are not
/// tried.
constexpr int64_t gapFitPairBudget = 150'000'000;

/// The best placement so far and the peak at which to stop.
struct Incumbent {
  const PlacementModel &model;
  int64_t target; // good enough: the bound, or the capacity asked for
  std::vector<int64_t> offsets = {};
  int64_t peak = INT64_MAX;
  std::string method = {};

  bool done() const { return peak <= target; }
  void offer(std::vector<int64_t> candidate, std::string name) {
    int64_t candidatePeak = peakOf(model, candidate);
    if (candidatePeak >= peak)
      return;
    peak = candidatePeak;
    offsets = std::move(candidate);
    method = std::move(name);
  }
};

void tryQuickOrders(const PlacementModel &model, const PlacementModel &reversed,
                    Incumbent &best) {
  if (model.anyFixed)
    return;
  for (const KeyName &key : keys)
    for (const PlacementModel *view : {&model, &reversed}) {
      if (best.done())
        return;
      best.offer(stackOnSkyline(*view, placementOrder(*view, key.key)),
                 std::string("skyline by ") + key.name);
    }
  for (const PlacementModel *view : {&model, &reversed})
    if (!best.done())
      best.offer(allocateInTime(*view), "best fit in time");
}

void tryGapFitting(const PlacementModel &model, const PlacementModel &reversed,
                   Incumbent &best) {
  // Without another way (fixed offsets), a first order is always afforded.
  if (best.done() || (!model.anyFixed && model.overlapPairs > maxGapFitPairs))
    return;
  GapFitter fitter(model); // serves both directions: neighbors are the same in either
  int64_t budget = gapFitPairBudget;
  for (const GapOrder &entry : gapOrders)
    for (bool mirrored : {false, true}) {
      if (best.done() || (budget <= 0 && best.peak != INT64_MAX))
        return;
      budget -= 2 * model.overlapPairs;
      auto order = placementOrder(mirrored ? reversed : model, entry.key);
      best.offer(fitter.place(order, entry.rule),
                 std::string(entry.name) + (mirrored ? ", reversed" : ""));
    }
}

/// Small gaps that the orders leave are mostly closed by a few moves.
void tryPromotion(const PlacementModel &model, const PlacementModel &reversed,
                  Incumbent &best) {
  constexpr int64_t pairBudget = 500'000'000;
  constexpr int64_t mostRounds = 300;
  bool isSmall = double(best.peak) <= 1.05 * double(best.target);
  if (best.done() || !isSmall || model.anyFixed || model.overlapPairs > maxGapFitPairs)
    return;
  int64_t work = 2 * model.overlapPairs + int64_t(model.blocks.size());
  int64_t rounds = std::min(mostRounds, pairBudget / std::max<int64_t>(1, 8 * work));
  if (rounds < 8)
    return;
  GapFitter fitter(model);
  for (const GapOrder &entry : gapOrders)
    for (bool mirrored : {false, true}) {
      if (best.done())
        return;
      if (entry.key != PlacementKey::Start) // the others gain little
        continue;
      auto order = placementOrder(mirrored ? reversed : model, entry.key);
      best.offer(placeByPromotion(model, fitter, std::move(order), entry.rule,
                                  best.target, int(rounds)),
                 std::string(entry.name) + (mirrored ? ", reversed" : "") + ", promoted");
    }
}

/// From the best placement so far, blocks in the order of their offsets, and from blocks
/// by size, in turn: what holds one start up is rarely in the way of the other.
void trySwaps(const PlacementModel &model, Incumbent &best) {
  constexpr int64_t pairsPerStart = 30'000'000;
  constexpr int64_t leastRounds = 100;
  bool isSmall = double(best.peak) <= 1.05 * double(best.target);
  if (best.done() || !isSmall || model.anyFixed ||
      2 * model.overlapPairs * leastRounds > pairsPerStart)
    return;
  std::vector<int32_t> bySize = placementOrder(model, PlacementKey::Size);
  std::vector<int32_t> byOffset = bySize;
  std::sort(byOffset.begin(), byOffset.end(), [&](int32_t a, int32_t b) {
    return std::pair(best.offsets[a], a) < std::pair(best.offsets[b], b);
  });
  uint32_t starts = double(best.peak) <= 1.01 * double(best.target) ? 2 : 6;
  for (uint32_t seed = 1; seed <= starts && !best.done(); ++seed) {
    best.offer(placeBySwaps(model, byOffset, {best.target, pairsPerStart, seed, 0, 20}),
               "first fit, swapped");
    if (!best.done())
      best.offer(placeBySwaps(model, bySize, {best.target, pairsPerStart, seed, 50, 5}),
                 "first fit by size, swapped");
  }
}

/// Narrows [proved bound, best peak] by exact searches. True when the best peak is proved
/// optimal.
bool searchBelow(const PlacementModel &model, int64_t nodeBudget, Incumbent &best,
                 int64_t &nodes) {
  int64_t step = model.granularity;
  int64_t infeasible = model.lowerBound - 1; // proved: no placement of this peak
  int64_t unknown = infeasible;              // at or below it we ran out of nodes
  // The target comes first: meeting it ends the search. A capacity is the only peak of
  // interest, so all nodes go there; otherwise half of them go to the bound, which is
  // usually met.
  int64_t capacity = best.target;
  int64_t share = best.target > model.lowerBound ? nodeBudget : nodeBudget / 2;
  while (!best.done() && nodes < nodeBudget && capacity < best.peak) {
    SearchOutcome outcome =
        searchPlacement(model, capacity, std::min(share, nodeBudget - nodes));
    nodes += outcome.nodes;
    if (outcome.result == SearchResult::Found)
      best.offer(std::move(outcome.offsets), "branch and bound");
    else if (outcome.result == SearchResult::Infeasible)
      infeasible = std::max(infeasible, capacity);
    unknown = std::max(
        {unknown, infeasible, outcome.result == SearchResult::OutOfNodes ? capacity : 0});
    // Between what failed and what is known; peaks are multiples of the granularity.
    capacity = (unknown + (best.peak - unknown) / 2) / step * step;
    if (capacity <= unknown)
      capacity += step;
    share = nodeBudget / 8;
  }
  return best.peak <= model.lowerBound || infeasible + step >= best.peak;
}

} // namespace

PlacementSolution placeBuffers(const PlacementProblem &problem) {
  PlacementSolution solution;
  PlacementModel model = PlacementModel::build(problem, solution.error);
  if (!solution.error.empty())
    return solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  solution.lowerBoundBytes = model.lowerBound;
  for (size_t i = 0; i < problem.buffers.size(); ++i)
    solution.offsets[i] = problem.buffers[i].fixedOffset.value_or(0);
  if (model.blocks.empty()) {
    solution.optimal = true;
    solution.fits = !problem.capacityBytes || *problem.capacityBytes >= 0;
    solution.method = "empty";
    return solution;
  }

  int64_t target = model.lowerBound;
  if (problem.capacityBytes)
    target = std::max(target, *problem.capacityBytes);
  // The first orders may stop where it is enough: what follows only lowers the peak.
  Incumbent best{model, std::max(target, problem.enoughBytes.value_or(0))};
  PlacementModel reversed = model.reversed();
  tryQuickOrders(model, reversed, best);
  int64_t needed = std::min(problem.capacityBytes.value_or(INT64_MAX),
                            problem.enoughBytes.value_or(INT64_MAX));
  bool hopeless = needed < model.lowerBound;
  if (!hopeless || best.offsets.empty())
    tryGapFitting(model, reversed, best);
  bool proved = false;
  if (!best.done() && !hopeless) {
    best.target = target;
    tryPromotion(model, reversed, best);
    if (!best.done() && int64_t(model.blocks.size()) <= maxSearchBlocks &&
        model.overlapPairs <= maxSearchPairs)
      proved = searchBelow(model, problem.nodeBudget, best, solution.nodes);
    trySwaps(model, best);
  }
  proved |= best.peak <= model.lowerBound;

  for (size_t i = 0; i < model.blocks.size(); ++i)
    solution.offsets[model.blocks[i].source] = best.offsets[i];
  solution.peakBytes = best.peak;
  solution.optimal = proved;
  solution.fits = !problem.capacityBytes || best.peak <= *problem.capacityBytes;
  solution.method = best.method;
  return solution;
}

} // namespace sluice
