#pragma once
// Which of several formats each block of stored numbers takes, so that all together take
// at most so many bytes and the loss is expected to rise least: a multiple-choice
// knapsack, one option for each item.
//
// Method: the Lagrangian relaxation of the bytes gives the walk of its optima and a
// bound; options whose reduced cost is above the gap are fixed out (Sinha and Zoltners,
// 1979); what is left, the core, is enumerated item by item with dominance (Pisinger,
// 1995) and bounds.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct FormatOption {
  double increase = 0; ///< expected of the loss; finite, not negative
  int64_t bytes = 0;
  double timeUs = 0; ///< predicted, of a step; decides between equals only
};

struct FormatProblem {
  struct Item {
    std::string name;
    std::vector<FormatOption> options; ///< at least one
  };
  std::vector<Item> items;
  int64_t budgetBytes = 0;
  int64_t width = 1 << 14; ///< partial choices kept at a time
};

struct FormatSolution {
  std::vector<int32_t> choice; ///< an option for each item
  double increase = 0;
  int64_t bytes = 0;
  double timeUs = 0;
  /// No choice within the budget has a lower increase.
  double boundIncrease = 0;
  /// What a byte is worth: with it the relaxation gives `dualIncrease`, a bound that
  /// anyone can check.
  double increasePerByte = 0, dualIncrease = 0;
  bool isExact = false; ///< the core was enumerated to its end
  int64_t states = 0;
  int64_t smallestBytes = 0; ///< of any choice
  std::string error;         ///< empty: a choice within the budget

  /// increase / bound - 1; 0 where both are 0.
  double gap() const;
};

/// The choice with the least increase within the budget; among equals less time, then
/// fewer bytes.
FormatSolution assignFormats(const FormatProblem &problem);

/// A choice that no other with as few bytes beats, for some price of a byte.
struct FormatStep {
  std::vector<int32_t> choice;
  double increase = 0;
  int64_t bytes = 0;
  double timeUs = 0;
};

/// All optima of the relaxation as the price of a byte rises: the first has the least
/// increase, the last the fewest bytes. Budgets that are looked at together are theirs.
std::vector<FormatStep> walkFormats(const FormatProblem &problem);

/// How formats are chosen to compare with: of the items in this order, each takes its
/// smallest option until the budget is met, and the last of them the largest that still
/// meets it.
FormatSolution assignInOrder(const FormatProblem &problem,
                             const std::vector<int32_t> &order);

/// Largest items first, and items in an order that follows from the seed.
std::vector<int32_t> orderBySize(const FormatProblem &problem);
std::vector<int32_t> orderAtRandom(const FormatProblem &problem, uint64_t seed);

} // namespace sluice
