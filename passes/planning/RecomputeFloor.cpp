#include "passes/planning/RecomputeFloor.h"

#include "passes/planning/RecomputeGraph.h"

namespace sluice {
namespace {

/// Runs and the values they hand to each other: an instance for each run that writes one.
class Runs {
public:
  Runs(const RecomputeGraph &graph, const std::vector<Execution> &schedule)
      : graph(graph), schedule(schedule) {
    std::vector<int32_t> latest(graph.valueCount, -1);
    for (int32_t v = 0; v < graph.valueCount; ++v)
      if (graph.preexisting[v])
        latest[v] = create(v, -1);
    for (int32_t i = 0; i < int32_t(schedule.size()); ++i) {
      auto [op, again] = schedule[i];
      auto optional = graph.optionalInputs[op];
      std::vector<int32_t> &reads = inputs.emplace_back();
      for (int32_t v : graph.inputs[op])
        if (!again || !std::binary_search(optional.begin(), optional.end(), v)) {
          reads.push_back(latest[v]);
          instances[latest[v]].readers.push_back(i);
        }
      std::vector<int32_t> &writes = outputs.emplace_back();
      for (int32_t v : graph.outputs[op])
        writes.push_back(latest[v] = create(v, i));
    }
    for (int32_t v = 0; v < graph.valueCount; ++v)
      if (graph.liveAtEnd[v] && latest[v] >= 0)
        instances[latest[v]].liveAtEnd = true;
  }

  /// The run with most bytes in each of some stretches, as the schedule has them.
  std::vector<int32_t> fullest(int32_t stretches) const {
    int32_t count = int32_t(schedule.size());
    std::vector<int64_t> change(count + 1, 0);
    for (const Instance &instance : instances) {
      int32_t end = instance.liveAtEnd         ? count - 1
                    : instance.readers.empty() ? instance.writer
                                               : instance.readers.back();
      if (end < 0)
        continue;
      change[std::max(0, instance.writer)] += graph.size[instance.value];
      change[end + 1] -= graph.size[instance.value];
    }
    std::vector<int32_t> best(stretches, -1);
    std::vector<int64_t> most(stretches, -1);
    int64_t level = 0;
    for (int32_t i = 0; i < count; ++i) {
      level += change[i];
      size_t s = size_t(int64_t(i) * stretches / count);
      int64_t here = level + graph.workspace[schedule[i].op];
      if (here > most[s])
        most[s] = here, best[s] = i;
    }
    std::erase(best, -1);
    return best;
  }

  /// Bytes live while `run` runs: what it touches, and what a run that must come before
  /// hands to one that must come behind.
  int64_t heldAt(int32_t run) const {
    std::vector<char> before = reach(run, false), behind = reach(run, true);
    auto [op, again] = schedule[run];
    int64_t bytes = graph.workspace[op];
    std::vector<char> held(instances.size(), 0), ends(graph.valueCount, 0);
    for (size_t k = 0; k < instances.size(); ++k) {
      const Instance &instance = instances[k];
      bool exists = instance.writer < 0 || before[instance.writer];
      bool wanted = instance.liveAtEnd;
      for (int32_t reader : instance.readers)
        wanted |= behind[reader] != 0;
      held[k] = exists && wanted;
      bytes += held[k] ? graph.size[instance.value] : 0;
    }
    for (int32_t k : inputs[run]) {
      ends[instances[k].value] = !held[k];
      bytes += held[k] ? 0 : graph.size[instances[k].value];
    }
    for (int32_t k : outputs[run]) {
      bool dropped = again && instances[k].readers.empty() && !instances[k].liveAtEnd;
      bytes += dropped ? 0 : graph.size[instances[k].value];
    }
    bytes -= graph.mostSharedBytes(op, [&](int32_t v) { return ends[v] != 0; });
    return bytes;
  }

private:
  struct Instance {
    int32_t value, writer; // run; -1: there from the start
    bool liveAtEnd = false;
    std::vector<int32_t> readers = {};
  };

  int32_t create(int32_t value, int32_t run) {
    instances.push_back({value, run});
    return int32_t(instances.size()) - 1;
  }

  std::vector<char> reach(int32_t run, bool forwards) const {
    std::vector<char> reached(schedule.size(), 0);
    std::vector<int32_t> open{run};
    while (!open.empty()) {
      int32_t i = open.back();
      open.pop_back();
      auto visit = [&](int32_t next) {
        if (next >= 0 && !reached[next]) {
          reached[next] = 1;
          open.push_back(next);
        }
      };
      for (int32_t k : forwards ? outputs[i] : inputs[i]) {
        if (!forwards)
          visit(instances[k].writer);
        else
          for (int32_t reader : instances[k].readers)
            visit(reader);
      }
    }
    return reached;
  }

  const RecomputeGraph &graph;
  const std::vector<Execution> &schedule;
  std::vector<Instance> instances;
  std::vector<std::vector<int32_t>> inputs, outputs; // instances, by run
};

} // namespace

int64_t leastBytesInAnyOrder(const RecomputeProblem &problem,
                             const RecomputeSolution &solution) {
  constexpr int32_t stretches = 24;
  std::string error;
  RecomputeGraph graph = RecomputeGraph::build(problem, error);
  if (!error.empty() || !solution.error.empty())
    return 0;
  Runs runs(graph, solution.schedule);
  int64_t least = 0;
  for (int32_t run : runs.fullest(stretches))
    least = std::max(least, runs.heldAt(run));
  return least;
}

} // namespace sluice
