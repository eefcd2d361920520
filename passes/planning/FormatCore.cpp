#include "passes/planning/FormatCore.h"

#include "passes/planning/FormatHull.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace sluice {

FormatCore::FormatCore(const FormatProblem &problem, const FormatSolution &relaxed)
    : problem(problem), price(relaxed.increasePerByte), known(relaxed.choice),
      leastDropped(INFINITY) {
  gap = std::max(0.0, relaxed.increase - relaxed.dualIncrease);
  room = problem.budgetBytes;
  for (size_t i = 0; i < problem.items.size(); ++i)
    addEntry(static_cast<int32_t>(i));
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return std::tuple(-a.range, a.item) < std::tuple(-b.range, b.item);
  });
  for (size_t i = 0; i < entries.size(); ++i)
    addMoves(static_cast<int32_t>(i));
  std::sort(up.begin(), up.end(), [](const Move &a, const Move &b) {
    return std::tuple(-a.price, a.entry) < std::tuple(-b.price, b.entry);
  });
  std::sort(down.begin(), down.end(), [](const Move &a, const Move &b) {
    return std::tuple(a.price, a.entry) < std::tuple(b.price, b.entry);
  });
}

/// The base choice has reduced cost 0, and of those the fewest bytes.
void FormatCore::addEntry(int32_t item) {
  const auto &options = problem.items[item].options;
  auto priced = [&](int32_t i) {
    return options[i].increase + price * double(options[i].bytes);
  };
  std::vector<int32_t> candidates = undominated(options);
  int32_t first = candidates.front();
  for (int32_t i : candidates) // bytes rise
    if (priced(i) < priced(first))
      first = i;
  base.push_back(first);
  room -= options[first].bytes;
  Entry entry{item, {{first, 0, 0}}};
  for (int32_t i : candidates) {
    Option option{i, options[i].bytes - options[first].bytes, priced(i) - priced(first)};
    if (i == first || option.cost > gap)
      continue;
    entry.options.push_back(option);
    entry.range = std::max(entry.range, std::abs(option.bytes));
  }
  if (entry.options.size() > 1)
    entries.push_back(std::move(entry));
}

/// Along the hull of what is left of the options, away from the base choice.
void FormatCore::addMoves(int32_t index) {
  const Entry &entry = entries[index];
  std::vector<FormatOption> left;
  for (const Option &option : entry.options)
    left.push_back(problem.items[entry.item].options[option.index]);
  std::vector<int32_t> hull = convexHull(left);
  size_t at = std::find(hull.begin(), hull.end(), 0) - hull.begin();
  auto move = [&](int32_t from, int32_t to, std::vector<Move> &moves) {
    int64_t bytes = std::abs(left[to].bytes - left[from].bytes);
    double change = std::abs(left[to].increase - left[from].increase);
    moves.push_back({change / double(bytes), index, to, bytes});
  };
  for (size_t i = at; i + 1 < hull.size(); ++i)
    move(hull[i], hull[i + 1], up);
  for (size_t i = at; i > 0 && i < hull.size(); --i)
    move(hull[i], hull[i - 1], down);
}

FormatCore::Rest FormatCore::restOf(const std::vector<Move> &moves, size_t from,
                                    double sign) const {
  Rest rest;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].entry < static_cast<int32_t>(from))
      continue;
    double cost = std::max(0.0, sign * (price - moves[i].price));
    rest.moves.push_back(static_cast<int32_t>(i));
    rest.bytes.push_back(rest.bytes.back() + moves[i].bytes);
    rest.cost.push_back(rest.cost.back() + cost * double(moves[i].bytes));
  }
  return rest;
}

/// Of all that the partial choice may become, above the dual bound.
double FormatCore::boundOf(const State &state) const {
  int64_t left = room - state.bytes;
  const Rest &rest = left >= 0 ? restUp : restDown;
  int64_t wanted = std::abs(left);
  size_t at = std::upper_bound(rest.bytes.begin(), rest.bytes.end(), wanted) -
              rest.bytes.begin(); // the first sum that is more
  if (at == rest.bytes.size()) {
    if (left < 0)
      return wanted > rest.bytes.back() ? INFINITY : state.cost + rest.cost.back();
    return state.cost + rest.cost.back() + price * double(wanted - rest.bytes.back());
  }
  double share =
      double(wanted - rest.bytes[at - 1]) / double(rest.bytes[at] - rest.bytes[at - 1]);
  return state.cost + rest.cost[at - 1] + share * (rest.cost[at] - rest.cost[at - 1]);
}

/// Rounds the relaxation of the rest: a choice within the budget, maybe the best.
void FormatCore::complete(const State &state) {
  std::vector<int32_t> taken(entries.size(), 0);
  for (int32_t at = state.parent; at >= 0; at = all[at].parent)
    taken[all[at].entry] = all[at].option;
  std::vector<bool> isClosed(entries.size(), false);
  int64_t left = room - state.bytes;
  double value = state.cost + price * double(left);
  for (int32_t i : restDown.moves) {
    if (left >= 0)
      break;
    const Move &move = down[i];
    left += move.bytes, value += move.price * double(move.bytes);
    taken[move.entry] = move.option, isClosed[move.entry] = true;
  }
  for (int32_t i : restUp.moves) {
    const Move &move = up[i];
    if (isClosed[move.entry] || move.bytes > left) {
      isClosed[move.entry] = true;
      continue;
    }
    left -= move.bytes, value -= move.price * double(move.bytes);
    taken[move.entry] = move.option;
  }
  if (left < 0 || value >= gap)
    return;
  gap = std::max(0.0, value);
  known = base;
  for (size_t i = 0; i < entries.size(); ++i)
    known[entries[i].item] = entries[i].options[taken[i]].index;
}

std::vector<FormatCore::State> FormatCore::extend(const std::vector<State> &from,
                                                  size_t at) {
  std::vector<State> to;
  const Entry &entry = entries[at];
  for (const State &state : from)
    for (int32_t i = 0; i < static_cast<int32_t>(entry.options.size()); ++i) {
      const Option &option = entry.options[i];
      State next{state.bytes + option.bytes, state.cost + option.cost, 0, state.parent,
                 i};
      next.bound = boundOf(next);
      if (next.bound < gap)
        to.push_back(next);
    }
  return to;
}

void FormatCore::keepUndominated(std::vector<State> &states) const {
  auto increase = [&](const State &s) { return s.cost - price * double(s.bytes); };
  std::sort(states.begin(), states.end(), [&](const State &a, const State &b) {
    return std::tuple(a.bytes, increase(a), a.parent, a.option) <
           std::tuple(b.bytes, increase(b), b.parent, b.option);
  });
  size_t kept = 0;
  for (const State &state : states)
    if (kept == 0 || increase(state) < increase(states[kept - 1]))
      states[kept++] = state;
  states.resize(kept);
}

void FormatCore::keepLowest(std::vector<State> &states, size_t width) {
  std::sort(states.begin(), states.end(), [](const State &a, const State &b) {
    return std::tuple(a.bound, a.bytes, a.parent, a.option) <
           std::tuple(b.bound, b.bytes, b.parent, b.option);
  });
  if (states.size() <= width)
    return;
  leastDropped = std::min(leastDropped, states[width].bound);
  states.resize(width);
}

void FormatCore::enumerate(size_t width) {
  constexpr size_t completions = 8;
  std::vector<State> states = {{0, 0, 0, -1, 0}};
  restUp = restOf(up, 0, 1), restDown = restOf(down, 0, -1);
  complete(states[0]);
  for (size_t at = 0; at < entries.size() && !states.empty(); ++at) {
    restUp = restOf(up, at + 1, 1), restDown = restOf(down, at + 1, -1);
    states = extend(states, at);
    keepUndominated(states);
    keepLowest(states, width);
    for (State &state : states) {
      all.push_back({state.parent, state.option, static_cast<int32_t>(at)});
      state.parent = static_cast<int32_t>(all.size()) - 1;
    }
    // The last entry leaves nothing to round: each is a choice of its own.
    size_t count = at + 1 == entries.size() ? states.size() : completions;
    for (size_t i = 0; i < std::min(count, states.size()); ++i)
      complete(states[i]);
  }
}

} // namespace sluice
