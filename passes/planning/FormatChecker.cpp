#include "passes/planning/FormatChecker.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

/// Sums of other orders differ by rounding.
bool isNear(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)) + 1e-300;
}

/// Weak duality: for a price p >= 0 of a byte, every choice within the budget has at
/// least the sum over items of min(increase + p * bytes), less p * budget.
double dualOf(const FormatProblem &problem, double price) {
  double sum = 0;
  for (const FormatProblem::Item &item : problem.items) {
    double least = std::numeric_limits<double>::infinity();
    for (const FormatOption &option : item.options)
      least = std::min(least, option.increase + price * double(option.bytes));
    sum += least;
  }
  return sum - price * double(problem.budgetBytes);
}

} // namespace

std::string checkFormats(const FormatProblem &problem, const FormatSolution &solution) {
  if (!solution.error.empty())
    return solution.choice.empty() ? "" : "a solution with an error has a choice";
  if (solution.choice.size() != problem.items.size())
    return "the choice has " + std::to_string(solution.choice.size()) +
           " entries, expected " + std::to_string(problem.items.size());
  double increase = 0, magnitude = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const auto &options = problem.items[i].options;
    int32_t chosen = solution.choice[i];
    if (chosen < 0 || size_t(chosen) >= options.size())
      return "item " + std::to_string(i) + " has no option " + std::to_string(chosen);
    increase += options[chosen].increase;
    bytes += options[chosen].bytes;
    magnitude += solution.increasePerByte * double(options[chosen].bytes);
  }
  if (bytes != solution.bytes)
    return "the bytes are " + std::to_string(bytes) + ", stated " +
           std::to_string(solution.bytes);
  if (bytes > problem.budgetBytes)
    return "the bytes are " + std::to_string(bytes) + ", above the budget of " +
           std::to_string(problem.budgetBytes);
  if (!isNear(increase, solution.increase))
    return "the increase is not the sum of its items'";
  if (!(solution.increasePerByte >= 0))
    return "the price of a byte is negative";
  double tolerance = 1e-9 * (increase + magnitude);
  if (solution.dualIncrease > dualOf(problem, solution.increasePerByte) + tolerance)
    return "the dual bound does not follow from the price of a byte";
  if (solution.dualIncrease > solution.boundIncrease + tolerance)
    return "the bound is below the dual bound";
  if (solution.boundIncrease > solution.increase + tolerance)
    return "the bound is above the increase";
  return "";
}

} // namespace sluice
