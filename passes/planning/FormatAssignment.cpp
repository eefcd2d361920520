#include "passes/planning/FormatAssignment.h"

#include "passes/planning/FormatCore.h"
#include "passes/planning/FormatHull.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace sluice {
namespace {

int64_t leastBytes(const FormatProblem &problem) {
  int64_t sum = 0;
  for (const FormatProblem::Item &item : problem.items)
    sum += std::min_element(item.options.begin(), item.options.end(),
                            [](const FormatOption &a, const FormatOption &b) {
                              return a.bytes < b.bytes;
                            })
               ->bytes;
  return sum;
}

/// What is wrong with the problem itself, or with its budget.
std::string whyNone(const FormatProblem &problem, FormatSolution &solution) {
  for (const FormatProblem::Item &item : problem.items) {
    if (item.options.empty())
      return "'" + item.name + "' has no format";
    for (const FormatOption &option : item.options)
      if (!(option.increase >= 0) || !std::isfinite(option.increase) || option.bytes < 0)
        return "'" + item.name + "' has a format without a finite increase or bytes";
  }
  solution.smallestBytes = leastBytes(problem);
  if (solution.smallestBytes > problem.budgetBytes)
    return "the smallest formats take " + std::to_string(solution.smallestBytes) +
           " bytes, above the budget of " + std::to_string(problem.budgetBytes);
  return "";
}

void sum(const FormatProblem &problem, const std::vector<int32_t> &choice,
         double &increase, int64_t &bytes, double &timeUs) {
  increase = timeUs = 0, bytes = 0;
  for (size_t i = 0; i < choice.size(); ++i) {
    const FormatOption &option = problem.items[i].options[choice[i]];
    increase += option.increase, bytes += option.bytes, timeUs += option.timeUs;
  }
}

void take(const FormatProblem &problem, std::vector<int32_t> choice,
          FormatSolution &solution) {
  sum(problem, choice, solution.increase, solution.bytes, solution.timeUs);
  solution.choice = std::move(choice);
}

double dualAt(const FormatProblem &problem, double price) {
  double total = -price * double(problem.budgetBytes);
  for (const FormatProblem::Item &item : problem.items) {
    double least = INFINITY;
    for (const FormatOption &option : item.options)
      least = std::min(least, option.increase + price * double(option.bytes));
    total += least;
  }
  return total;
}

/// The first optimum of the relaxation within the budget, and the price that leads to it.
void relax(const FormatProblem &problem, FormatSolution &solution) {
  take(problem, widestChoice(problem), solution);
  std::vector<int32_t> choice = solution.choice;
  int64_t bytes = solution.bytes;
  for (const FormatMove &move : movesOf(problem)) {
    if (bytes <= problem.budgetBytes)
      break;
    const auto &options = problem.items[move.item].options;
    bytes += options[move.to].bytes - options[move.from].bytes;
    choice[move.item] = move.to;
    solution.increasePerByte = move.slope;
  }
  take(problem, std::move(choice), solution);
  solution.dualIncrease = std::max(0.0, dualAt(problem, solution.increasePerByte));
}

} // namespace

double FormatSolution::gap() const {
  if (increase <= boundIncrease)
    return 0;
  return boundIncrease > 0 ? increase / boundIncrease - 1 : INFINITY;
}

FormatSolution assignFormats(const FormatProblem &problem) {
  FormatSolution solution;
  solution.error = whyNone(problem, solution);
  if (!solution.error.empty())
    return solution;
  relax(problem, solution);
  solution.isExact = solution.increasePerByte == 0;
  double least = solution.dualIncrease;
  for (int64_t width = std::min<int64_t>(64, problem.width);
       !solution.isExact && width <= problem.width; width *= 16) {
    // A narrow search lowers the gap, so that a wider one has less to look at.
    FormatCore core(problem, solution);
    core.enumerate(static_cast<size_t>(width));
    solution.isExact = core.isComplete();
    solution.states += core.states();
    take(problem, core.best(), solution);
    least = solution.dualIncrease + core.least();
  }
  solution.boundIncrease =
      solution.isExact ? solution.increase : std::min(least, solution.increase);
  solution.dualIncrease = std::min(solution.dualIncrease, solution.boundIncrease);
  return solution;
}

std::vector<FormatStep> walkFormats(const FormatProblem &problem) {
  FormatStep step;
  step.choice = widestChoice(problem);
  sum(problem, step.choice, step.increase, step.bytes, step.timeUs);
  std::vector<FormatStep> walk = {step};
  for (const FormatMove &move : movesOf(problem)) {
    step.choice[move.item] = move.to;
    sum(problem, step.choice, step.increase, step.bytes, step.timeUs);
    walk.push_back(step);
  }
  return walk;
}

FormatSolution assignInOrder(const FormatProblem &problem,
                             const std::vector<int32_t> &order) {
  FormatSolution solution;
  solution.error = whyNone(problem, solution);
  if (!solution.error.empty())
    return solution;
  auto hasMore = [](const FormatOption &a, const FormatOption &b) {
    return a.bytes < b.bytes;
  };
  std::vector<int32_t> choice;
  int64_t bytes = 0;
  for (const FormatProblem::Item &item : problem.items) {
    auto widest = std::max_element(item.options.begin(), item.options.end(), hasMore);
    choice.push_back(static_cast<int32_t>(widest - item.options.begin()));
    bytes += widest->bytes;
  }
  for (int32_t i : order) {
    if (bytes <= problem.budgetBytes)
      break;
    const auto &options = problem.items[i].options;
    int64_t others = bytes - options[choice[i]].bytes;
    auto smallest = std::min_element(options.begin(), options.end(), hasMore);
    auto taken = smallest;
    for (auto option = options.begin(); option != options.end(); ++option)
      if (others + option->bytes <= problem.budgetBytes && option->bytes > taken->bytes)
        taken = option;
    choice[i] = static_cast<int32_t>(taken - options.begin());
    bytes = others + taken->bytes;
  }
  take(problem, std::move(choice), solution);
  solution.boundIncrease = solution.dualIncrease = 0;
  return solution;
}

std::vector<int32_t> orderBySize(const FormatProblem &problem) {
  std::vector<int32_t> order(problem.items.size());
  std::iota(order.begin(), order.end(), 0);
  auto most = [&](int32_t i) {
    int64_t bytes = 0;
    for (const FormatOption &option : problem.items[i].options)
      bytes = std::max(bytes, option.bytes);
    return bytes;
  };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::tuple(-most(a), a) < std::tuple(-most(b), b);
  });
  return order;
}

std::vector<int32_t> orderAtRandom(const FormatProblem &problem, uint64_t seed) {
  std::vector<int32_t> order(problem.items.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) { // Fisher-Yates, SplitMix64
    uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    std::swap(order[i - 1], order[(z ^ (z >> 31)) % i]);
  }
  return order;
}

} // namespace sluice
