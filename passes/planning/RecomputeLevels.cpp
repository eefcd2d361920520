#include "passes/planning/RecomputeLevels.h"

#include <algorithm>
#include <limits>

namespace sluice {

RecomputeLevels::RecomputeLevels(const RecomputeGraph &graph, int32_t maxSegments,
                                 int32_t slots)
    : graph(graph), chain(RecomputeChain::build(graph, maxSegments)), bytes(graph, chain),
      slots(slots), simulator(graph) {
  forwardUs.assign(chain.count + 1, 0);
  for (int32_t s = 1; s <= chain.count; ++s)
    forwardUs[s] = forwardUs[s - 1] + chain.costUs[s];
  findLeast();
}

int64_t RecomputeLevels::bytesOfMove(int32_t i, int32_t j, int32_t choice) const {
  int64_t gradients = chain.gradientBytes[j];
  if (choice == leaf)
    return std::max(bytes.leafForward(j) + gradients, bytes.backward(j));
  if (choice > 0) {
    int64_t run = bytes.forward(i, choice) + gradients;
    if (choice + 1 < j)
      return run;
    // The border is only held while the last segment runs.
    return std::max({run, bytes.border(i, j - 1) + bytes.leafForward(j) + gradients,
                     bytes.backward(j) + bytes.readBetween(i, j)});
  }
  int32_t k = retainAtZero - choice;
  return std::max({bytes.forward(i, k - 1) + gradients,
                   bytes.border(i, k - 1) + bytes.retainingForward(k) + gradients,
                   bytes.backward(k) + bytes.readBetween(i, k)});
}

RecomputeLevels::Move RecomputeLevels::moveOf(int32_t i, int32_t j,
                                              int32_t choice) const {
  Move move;
  move.needed = bytesOfMove(i, j, choice);
  if (choice == leaf) {
    move.runTo = j;
    move.phase = j;
  } else if (choice > 0 && choice + 1 == j) {
    move.runTo = j;
    move.phase = j;
    move.again = choice;
  } else if (choice > 0) {
    move.runTo = move.rest = move.again = choice;
    move.held = bytes.border(i, choice);
  } else {
    int32_t k = retainAtZero - choice;
    move.runTo = move.rest = move.phase = k;
    move.again = k - 1 > i ? k - 1 : none;
    move.held = bytes.border(i, k) + bytes.retained(k) - bytes.border(k - 1, k) +
                bytes.readBetween(i, k);
  }
  return move;
}

template <typename Visit>
void RecomputeLevels::forEachChoice(int32_t i, int32_t j, Visit visit) const {
  if (j == i + 1) {
    visit(leaf);
    return;
  }
  for (int32_t k = i + 1; k < j; ++k) {
    visit(retainAtZero - k);
    visit(k);
  }
}

int64_t RecomputeLevels::leastOfMove(const Move &move, int32_t i, int32_t j) const {
  int64_t needed = move.needed;
  if (move.rest != none)
    needed = std::max(needed, move.held + least[pairIndex(move.rest, j)]);
  if (move.again != none)
    needed = std::max(needed, least[pairIndex(i, move.again)]);
  return needed;
}

void RecomputeLevels::findLeast() {
  size_t rows = size_t(chain.count) + 1;
  least.assign(rows * rows, std::numeric_limits<int64_t>::max());
  leastChoice.assign(rows * rows, none);
  auto leastOf = [&](int32_t i, int32_t j) {
    int64_t &best = least[pairIndex(i, j)];
    forEachChoice(i, j, [&](int32_t choice) {
      int64_t needed = leastOfMove(moveOf(i, j, choice), i, j);
      if (needed < best) {
        best = needed;
        leastChoice[pairIndex(i, j)] = choice;
      }
    });
  };
  for (int32_t length = 1; length <= chain.count; ++length)
    for (int32_t i = 0; i + length <= chain.count; ++i)
      leastOf(i, i + length);
}

/// The inner loop of the table, without branches so that it is vectorised.
static void takeBetter(float *__restrict target, int32_t *__restrict chosen,
                       const float *__restrict rest, const float *__restrict again,
                       float us, int32_t choice, int64_t count) {
  for (int64_t m = 0; m < count; ++m) {
    float total = us + rest[m] + again[m];
    bool better = total < target[m];
    target[m] = better ? total : target[m];
    chosen[m] = better ? choice : chosen[m];
  }
}

/// Offers a choice to all slots of a pair.
void RecomputeLevels::relax(Table &table, int32_t i, int32_t j, int32_t choice) const {
  Move move = moveOf(i, j, choice);
  auto row = [&](int32_t from, int32_t to) {
    return table.us.data() + pairIndex(from, to) * size_t(slots);
  };
  int64_t held = table.slotsOf(move.held);
  int64_t first = std::max(held, table.slotsOf(leastOfMove(move, i, j)));
  float *target = row(i, j), us = float(forwardUs[move.runTo] - forwardUs[i]);
  int32_t *chosen = table.choice.data() + pairIndex(i, j) * size_t(slots);
  const float *rest = move.rest != none ? row(move.rest, j) : table.zeros.data() + held;
  const float *again = move.again != none ? row(i, move.again) : table.zeros.data();
  // Nothing beats running each segment once.
  int64_t last = table.saturated[pairIndex(i, j)];
  if (first < last)
    takeBetter(target + first, chosen + first, rest + (first - held), again + first, us,
               choice, last - first);
  float once = float(forwardUs[j] - forwardUs[i]);
  while (last > 0 && target[last - 1] <= once * (1 + 1e-6f))
    --last;
  table.saturated[pairIndex(i, j)] = int32_t(last);
}

RecomputeLevels::Table RecomputeLevels::fill(int64_t topBytes) const {
  size_t rows = size_t(chain.count) + 1;
  Table table;
  table.unit = std::max<int64_t>(1, (topBytes + slots - 2) / (slots - 1));
  table.us.assign(rows * rows * size_t(slots), std::numeric_limits<float>::infinity());
  table.choice.assign(rows * rows * size_t(slots), none);
  table.zeros.assign(size_t(slots), 0);
  table.saturated.assign(rows * rows, slots);
  for (int32_t length = 1; length <= chain.count; ++length)
    for (int32_t i = 0; i + length <= chain.count; ++i)
      forEachChoice(i, i + length,
                    [&](int32_t choice) { relax(table, i, i + length, choice); });
  return table;
}

void RecomputeLevels::emitSegment(int32_t segment) {
  for (int32_t o = chain.begin[segment - 1]; o < chain.begin[segment]; ++o)
    if (graph.rerun[o] || !hasRun[segment])
      sequence.push_back(o);
  hasRun[segment] = 1;
}

void RecomputeLevels::emitPhase(int32_t segment) {
  sequence.insert(sequence.end(), chain.phase[segment].begin(),
                  chain.phase[segment].end());
}

void RecomputeLevels::emit(const Table *table, int32_t i, int32_t j, int32_t slot) {
  int32_t choice = table ? table->choice[pairIndex(i, j) * size_t(slots) + size_t(slot)]
                         : leastChoice[pairIndex(i, j)];
  Move move = moveOf(i, j, choice);
  for (int32_t s = i + 1; s <= move.runTo; ++s)
    emitSegment(s);
  if (move.rest != none)
    emit(table, move.rest, j, table ? slot - int32_t(table->slotsOf(move.held)) : 0);
  if (move.phase != none)
    emitPhase(move.phase);
  if (move.again != none)
    emit(table, i, move.again, slot);
}

void RecomputeLevels::emitPlan(const Table *table, int32_t slot, ParetoPlans &plans) {
  sequence.clear();
  hasRun.assign(chain.count + 1, 0);
  emit(table, 0, chain.count, slot);
  emitPhase(0);
  ScheduleCost cost = simulator.simulate(sequence);
  if (plans.wouldTake(cost))
    plans.add({cost, {}, sequence, "levels"});
}

void RecomputeLevels::addPlans(int64_t topBytes, ParetoPlans &plans) {
  if (chain.count == 0)
    return;
  emitPlan(nullptr, 0, plans);
  int64_t leastBytes = least[pairIndex(0, chain.count)];
  topBytes = std::max(topBytes - chain.pinnedBytes, leastBytes);
  // A second, finer table near the least: what is rounded up adds up over the levels.
  std::vector<int64_t> tops = {leastBytes + leastBytes / 3};
  if (topBytes > tops[0])
    tops.push_back(topBytes);
  for (int64_t top : tops) {
    Table table = fill(top);
    const float *us = table.us.data() + pairIndex(0, chain.count) * size_t(slots);
    float best = std::numeric_limits<float>::infinity();
    for (int32_t slot = 0; slot < slots; ++slot)
      if (us[slot] < best) {
        best = us[slot];
        emitPlan(&table, slot, plans);
      }
  }
}

} // namespace sluice
