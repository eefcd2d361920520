#include "RecomputeExact.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <utility>

namespace sluice::testing {
namespace {

class SmallStep {
public:
  explicit SmallStep(const RecomputeProblem &problem) : problem(problem) {
    writer.assign(problem.values.size(), -1);
    first = int32_t(problem.ops.size());
    for (int32_t o = 0; o < int32_t(problem.ops.size()); ++o) {
      for (int32_t v : problem.ops[o].outputs)
        writer[v] = o;
      if (problem.ops[o].backward)
        first = std::min(first, o);
    }
  }

  int64_t round(int64_t bytes) const {
    while (bytes % problem.alignBytes)
      ++bytes;
    return bytes;
  }
  int64_t bytes(int32_t v) const { return round(problem.values[v].sizeBytes); }
  bool mayRunAgain(int32_t o) const {
    bool may = o < first && problem.ops[o].recomputable;
    for (int32_t v : problem.ops[o].outputs)
      may = may && !problem.values[v].keep;
    return may;
  }

  const RecomputeProblem &problem;
  std::vector<int32_t> writer;
  int32_t first;
};

class OneChoice {
public:
  OneChoice(const SmallStep &step, const std::set<int32_t> &kept) : step(step) {
    for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
      if (step.writer[v] < 0 || kept.count(v) || !step.mayRunAgain(step.writer[v]))
        available.insert(v);
  }

  std::pair<int64_t, double> measure() {
    for (int32_t o = 0; o < step.first; ++o)
      order.push_back(o);
    for (int32_t o = step.first; o < int32_t(step.problem.ops.size()); ++o) {
      fetch(step.problem.ops[o].inputs);
      order.push_back(o);
    }
    std::vector<int32_t> ends;
    for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
      if (step.problem.values[v].liveAtEnd && step.writer[v] >= 0 &&
          step.writer[v] < step.first)
        ends.push_back(v);
    fetch(ends);
    while (dropDeadRun()) {
    }
    double us = 0;
    std::set<int32_t> hasRun;
    for (int32_t o : order)
      us += step.problem.ops[o].timeUs(!hasRun.insert(o).second);
    return {peak(), us};
  }

private:
  void fetch(const std::vector<int32_t> &values) {
    std::set<int32_t> missing;
    for (int32_t v : values)
      require(v, missing);
    order.insert(order.end(), missing.begin(), missing.end());
  }
  void require(int32_t v, std::set<int32_t> &missing) {
    if (available.count(v))
      return;
    missing.insert(step.writer[v]);
    for (int32_t out : step.problem.ops[step.writer[v]].outputs)
      available.insert(out);
    for (int32_t in : step.problem.ops[step.writer[v]].inputs)
      require(in, missing);
  }

  /// True if the instance that run `i` writes is read before the next run that writes it.
  bool isRead(size_t i, int32_t v) const {
    for (size_t k = i + 1; k < order.size(); ++k) {
      const auto &op = step.problem.ops[order[k]];
      if (std::count(op.inputs.begin(), op.inputs.end(), v))
        return true;
      if (std::count(op.outputs.begin(), op.outputs.end(), v))
        return false;
    }
    return step.problem.values[v].liveAtEnd;
  }

  bool dropDeadRun() {
    for (size_t i = order.size(); i-- > 0;) {
      bool read = !step.mayRunAgain(order[i]) ||
                  std::count(order.begin(), order.end(), order[i]) == 1;
      for (int32_t v : step.problem.ops[order[i]].outputs)
        read = read || isRead(i, v);
      if (!read) {
        order.erase(order.begin() + int64_t(i));
        return true;
      }
    }
    return false;
  }

  int64_t peak() const {
    int64_t most = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto &op = step.problem.ops[order[i]];
      std::set<int32_t> live(op.inputs.begin(), op.inputs.end());
      live.insert(op.outputs.begin(), op.outputs.end());
      std::set<int32_t> written;
      for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
        if (step.writer[v] < 0)
          written.insert(v);
      for (size_t k = 0; k < i; ++k)
        for (int32_t v : step.problem.ops[order[k]].outputs)
          written.insert(v);
      for (int32_t v : written)
        if (!live.count(v) && isRead(i, v))
          live.insert(v);
      int64_t level = step.round(op.workspaceBytes);
      for (int32_t v : live)
        level += step.bytes(v);
      std::set<int32_t> shared;
      for (auto [in, out] : op.inPlace)
        if (!isRead(i, in) && !shared.count(in) && !shared.count(out)) {
          level -= std::min(step.bytes(in), step.bytes(out));
          shared.insert({in, out});
        }
      most = std::max(most, level);
    }
    return most;
  }

  const SmallStep &step;
  std::set<int32_t> available;
  std::vector<int32_t> order;
};

} // namespace

std::map<int64_t, double> timesOfAllChoices(const RecomputeProblem &problem) {
  SmallStep step(problem);
  std::vector<int32_t> choices;
  for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
    if (step.writer[v] >= 0 && step.mayRunAgain(step.writer[v]))
      choices.push_back(v);
  std::map<int64_t, double> best;
  for (uint32_t set = 0; set < 1u << choices.size(); ++set) {
    std::set<int32_t> kept;
    for (size_t i = 0; i < choices.size(); ++i)
      if (set >> i & 1)
        kept.insert(choices[i]);
    auto [peak, us] = OneChoice(step, kept).measure();
    auto at = best.emplace(peak, us).first;
    at->second = std::min(at->second, us);
  }
  return best;
}

double exactTime(const RecomputeProblem &problem, int64_t budgetBytes) {
  SmallStep step(problem);
  using State = std::pair<uint32_t, uint32_t>; // resident, run
  int32_t ops = int32_t(problem.ops.size());
  uint32_t start = 0, ends = 0, all = (1u << ops) - 1;
  for (int32_t v = 0; v < int32_t(step.writer.size()); ++v) {
    start |= step.writer[v] < 0 ? 1u << v : 0;
    ends |= problem.values[v].liveAtEnd ? 1u << v : 0;
  }
  std::map<State, double> distance;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>,
                      std::greater<>>
      queue;
  auto offer = [&](double us, State state) {
    auto [at, isNew] = distance.emplace(state, us);
    if (!isNew && at->second <= us)
      return;
    at->second = us;
    queue.push({us, state});
  };
  auto mayRun = [&](int32_t o, uint32_t run) {
    bool hasRun = run >> o & 1, forward = o < step.first;
    if (forward || hasRun)
      return !hasRun || (forward && step.mayRunAgain(o));
    uint32_t earlier = ((1u << o) - 1) & ~((1u << step.first) - 1);
    return !problem.backwardInOrder || (run & earlier) == earlier;
  };
  auto bytesOf = [&](uint32_t values) {
    int64_t level = 0;
    for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
      level += values >> v & 1 ? step.bytes(v) : 0;
    return level;
  };
  offer(0, {start, 0});
  while (!queue.empty()) {
    auto [us, state] = queue.top();
    queue.pop();
    if (distance[state] < us)
      continue;
    auto [resident, run] = state;
    if (run == all && (resident & ends) == ends)
      return us;
    for (int32_t v = 0; v < int32_t(step.writer.size()); ++v)
      if (resident >> v & 1)
        offer(us, {resident & ~(1u << v), run});
    for (int32_t o = 0; o < ops; ++o) {
      const auto &op = problem.ops[o];
      bool again = run >> o & 1;
      uint32_t during = resident, missing = 0;
      for (int32_t v : op.inputs)
        missing |= ~resident & 1u << v;
      if (again)
        for (int32_t v : op.optionalInputs)
          missing &= ~(1u << v);
      for (int32_t v : op.outputs)
        during |= 1u << v;
      if (missing || !mayRun(o, run))
        continue;
      int64_t level = step.round(op.workspaceBytes) + bytesOf(during);
      double after = us + op.timeUs(again);
      if (level <= budgetBytes)
        offer(after, {during, run | 1u << o});
      for (uint32_t set = 1; set < 1u << op.inPlace.size(); ++set) {
        int64_t saved = 0;
        uint32_t used = 0, overwritten = 0;
        for (size_t p = 0; p < op.inPlace.size(); ++p) {
          auto [in, out] = op.inPlace[p];
          if (!(set >> p & 1) || (used & (1u << in | 1u << out)))
            continue;
          used |= 1u << in | 1u << out;
          overwritten |= 1u << in;
          saved += std::min(step.bytes(in), step.bytes(out));
        }
        if (level - saved <= budgetBytes)
          offer(after, {during & ~overwritten, run | 1u << o});
      }
    }
  }
  return std::numeric_limits<double>::infinity();
}

} // namespace sluice::testing
