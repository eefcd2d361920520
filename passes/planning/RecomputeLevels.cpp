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

void RecomputeLevels::findLeast() {
  size_t rows = size_t(chain.count) + 1;
  least.assign(rows * rows, std::numeric_limits<int64_t>::max());
  leastChoice.assign(rows * rows, none);
  for (int32_t length = 1; length <= chain.count; ++length)
    for (int32_t i = 0; i + length <= chain.count; ++i)
      leastOf(i, i + length);
}

int64_t RecomputeLevels::leafBytes(int32_t segment) const {
  return std::max(bytes.leafForward(segment) + chain.gradientBytes[segment],
                  bytes.backward(segment));
}

/// Of a split in front of the last segment: the border is only held while that runs.
int64_t RecomputeLevels::lastBytes(int32_t from, int32_t segment) const {
  return std::max(bytes.border(from, segment - 1) + bytes.leafForward(segment) +
                      chain.gradientBytes[segment],
                  bytes.backward(segment) + bytes.readBetween(from, segment));
}

void RecomputeLevels::leastOf(int32_t i, int32_t j) {
  int64_t &best = least[pairIndex(i, j)];
  int16_t &choice = leastChoice[pairIndex(i, j)];
  if (j == i + 1) {
    best = leafBytes(j);
    choice = leaf;
    return;
  }
  int64_t retaining = bytes.retainingForward(i + 1) + chain.gradientBytes[j];
  best = std::max({retaining, bytes.retained(i + 1) + least[pairIndex(i + 1, j)],
                   bytes.backward(i + 1)});
  choice = retain;
  for (int32_t k = i + 1; k < j; ++k) {
    int64_t needed =
        std::max({bytes.forward(i, k) + chain.gradientBytes[j],
                  bytes.border(i, k) + least[pairIndex(k, j)], least[pairIndex(i, k)]});
    if (needed < best) {
      best = needed;
      choice = int16_t(k);
    }
  }
}

/// Offers a choice to all slots of a pair; `needed` bytes must be there beside what the
/// entries that it uses state.
void RecomputeLevels::relax(Table &table, int32_t i, int32_t j, int16_t choice,
                            int64_t needed) const {
  auto ceil = [&](int64_t amount) { return (amount + table.unit - 1) / table.unit; };
  auto row = [&](int32_t from, int32_t to) {
    return table.us.data() + pairIndex(from, to) * size_t(slots);
  };
  float *target = row(i, j);
  int16_t *chosen = table.choice.data() + pairIndex(i, j) * size_t(slots);
  bool alone = choice == leaf || choice + 1 == j; // nothing is held for others
  int64_t held = alone              ? 0
                 : choice == retain ? ceil(bytes.retained(i + 1))
                                    : ceil(bytes.border(i, choice));
  const float *rest = alone ? nullptr : choice == retain ? row(i + 1, j) : row(choice, j);
  const float *again = choice > 0 ? row(i, choice) : nullptr;
  double us = choice == leaf || choice == retain ? chain.costUs[i + 1]
              : alone                            ? forwardUs[j] - forwardUs[i]
                                                 : forwardUs[choice] - forwardUs[i];
  for (int64_t m = std::max(held, ceil(needed)); m < slots; ++m) {
    float total = float(us) + (rest ? rest[m - held] : 0) + (again ? again[m] : 0);
    if (total < target[m]) {
      target[m] = total;
      chosen[m] = choice;
    }
  }
}

void RecomputeLevels::fillPair(Table &table, int32_t i, int32_t j) const {
  if (j == i + 1) {
    relax(table, i, j, leaf, leafBytes(j));
    return;
  }
  relax(table, i, j, retain,
        std::max(bytes.retainingForward(i + 1) + chain.gradientBytes[j],
                 bytes.backward(i + 1)));
  for (int32_t k = i + 1; k < j; ++k)
    relax(table, i, j, int16_t(k),
          std::max(bytes.forward(i, k) + chain.gradientBytes[j],
                   k + 1 == j ? lastBytes(i, j) : 0));
}

RecomputeLevels::Table RecomputeLevels::fill(int64_t topBytes) const {
  size_t rows = size_t(chain.count) + 1;
  Table table;
  table.unit = std::max<int64_t>(1, (topBytes + slots - 2) / (slots - 1));
  table.us.assign(rows * rows * size_t(slots), std::numeric_limits<float>::infinity());
  table.choice.assign(rows * rows * size_t(slots), none);
  for (int32_t length = 1; length <= chain.count; ++length)
    for (int32_t i = 0; i + length <= chain.count; ++i)
      fillPair(table, i, i + length);
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
  int16_t choice = table ? table->choice[pairIndex(i, j) * size_t(slots) + size_t(slot)]
                         : leastChoice[pairIndex(i, j)];
  auto below = [&](int64_t held) {
    return table ? slot - int32_t((held + table->unit - 1) / table->unit) : 0;
  };
  if (choice == leaf) {
    emitSegment(j);
    emitPhase(j);
  } else if (choice == retain) {
    emitSegment(i + 1);
    emit(table, i + 1, j, below(bytes.retained(i + 1)));
    emitPhase(i + 1);
  } else {
    bool last = choice + 1 == j;
    for (int32_t s = i + 1; s <= (last ? j : choice); ++s)
      emitSegment(s);
    if (last)
      emitPhase(j);
    else
      emit(table, choice, j, below(bytes.border(i, choice)));
    emit(table, i, choice, slot);
  }
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
