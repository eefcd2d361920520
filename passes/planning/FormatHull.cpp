#include "passes/planning/FormatHull.h"

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

/// Increase for each byte that `b` has fewer than `a`.
double slopeOf(const FormatOption &a, const FormatOption &b) {
  return (b.increase - a.increase) / double(a.bytes - b.bytes);
}

} // namespace

std::vector<int32_t> undominated(const std::vector<FormatOption> &options) {
  std::vector<int32_t> order(options.size()), kept;
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const FormatOption &x = options[a], &y = options[b];
    return std::tuple(x.bytes, x.increase, x.timeUs, a) <
           std::tuple(y.bytes, y.increase, y.timeUs, b);
  });
  for (int32_t option : order)
    if (kept.empty() || options[option].increase < options[kept.back()].increase)
      kept.push_back(option);
  return kept;
}

std::vector<int32_t> convexHull(const std::vector<FormatOption> &options) {
  std::vector<int32_t> hull;
  for (int32_t option : undominated(options)) {
    // Slopes fall as bytes rise: the first bytes are worth most.
    while (hull.size() >= 2 &&
           slopeOf(options[option], options[hull.back()]) >=
               slopeOf(options[hull.back()], options[hull[hull.size() - 2]]))
      hull.pop_back();
    hull.push_back(option);
  }
  return hull;
}

std::vector<FormatMove> movesOf(const FormatProblem &problem) {
  std::vector<FormatMove> moves;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const auto &options = problem.items[i].options;
    std::vector<int32_t> hull = convexHull(options);
    for (size_t at = hull.size(); at-- > 1;)
      moves.push_back({slopeOf(options[hull[at]], options[hull[at - 1]]),
                       static_cast<int32_t>(i), hull[at], hull[at - 1]});
  }
  // Slopes rise along a hull, so that equal ones are those of different items.
  std::sort(moves.begin(), moves.end(), [](const FormatMove &a, const FormatMove &b) {
    return std::tuple(a.slope, a.item) < std::tuple(b.slope, b.item);
  });
  return moves;
}

std::vector<int32_t> widestChoice(const FormatProblem &problem) {
  std::vector<int32_t> choice;
  for (const FormatProblem::Item &item : problem.items)
    choice.push_back(undominated(item.options).back());
  return choice;
}

} // namespace sluice
