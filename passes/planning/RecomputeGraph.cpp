#include "passes/planning/RecomputeGraph.h"

#include <algorithm>
#include <cmath>

namespace sluice {

void IndexRows::addRow(const std::vector<int32_t> &row) {
  size_t begin = items.size();
  items.insert(items.end(), row.begin(), row.end());
  std::sort(items.begin() + begin, items.end());
  items.erase(std::unique(items.begin() + begin, items.end()), items.end());
  begins.push_back(int32_t(items.size()));
}

namespace {

std::string opName(size_t op) { return "operation " + std::to_string(op); }
std::string valueName(int32_t value) { return "value " + std::to_string(value); }

std::string checkOp(const RecomputeProblem &problem, size_t index,
                    std::vector<int32_t> &producer) {
  const RecomputeProblem::Op &op = problem.ops[index];
  if (!(op.costUs >= 0) || !std::isfinite(op.costUs) || !std::isfinite(op.againUs))
    return opName(index) + " has a cost that is not a time";
  if (op.workspaceBytes < 0)
    return opName(index) + " has a negative workspace";
  auto known = [&](int32_t v) { return v >= 0 && v < int32_t(problem.values.size()); };
  for (int32_t v : op.inputs) {
    if (!known(v))
      return opName(index) + " reads " + valueName(v) + ", which does not exist";
    if (producer[v] < 0 && !problem.values[v].preexisting)
      return opName(index) + " reads " + valueName(v) + " before it is computed";
  }
  for (auto [in, out] : op.inPlace)
    if (std::count(op.inputs.begin(), op.inputs.end(), in) == 0 ||
        std::count(op.outputs.begin(), op.outputs.end(), out) == 0)
      return opName(index) +
             " has an in-place pair that is not of its inputs and outputs";
  for (int32_t v : op.outputs) {
    if (!known(v))
      return opName(index) + " writes " + valueName(v) + ", which does not exist";
    if (producer[v] >= 0 || problem.values[v].preexisting)
      return opName(index) + " writes " + valueName(v) + ", which exists already";
    producer[v] = int32_t(index);
  }
  return {};
}

std::string check(const RecomputeProblem &problem, std::vector<int32_t> &producer) {
  int64_t align = problem.alignBytes;
  if (align <= 0 || (align & (align - 1)))
    return "the alignment " + std::to_string(align) + " is not a power of two";
  int64_t total = 0;
  for (size_t v = 0; v < problem.values.size(); ++v) {
    int64_t size = problem.values[v].sizeBytes;
    if (size < 0 || size > (int64_t(1) << 50) - total)
      return valueName(int32_t(v)) + " has a size out of range";
    total += size;
  }
  producer.assign(problem.values.size(), -1);
  for (size_t o = 0; o < problem.ops.size(); ++o)
    if (std::string wrong = checkOp(problem, o, producer); !wrong.empty())
      return wrong;
  for (size_t v = 0; v < problem.values.size(); ++v)
    if (problem.values[v].liveAtEnd && producer[v] < 0 && !problem.values[v].preexisting)
      return valueName(int32_t(v)) + " is an output, but nothing computes it";
  return {};
}

} // namespace

RecomputeGraph RecomputeGraph::build(const RecomputeProblem &problem,
                                     std::string &error) {
  RecomputeGraph graph;
  error = check(problem, graph.producer);
  if (!error.empty())
    return graph;
  graph.opCount = int32_t(problem.ops.size());
  graph.valueCount = int32_t(problem.values.size());
  auto first = std::find_if(problem.ops.begin(), problem.ops.end(),
                            [](const auto &op) { return op.backward; });
  graph.firstBackward = int32_t(first - problem.ops.begin());
  graph.backwardInOrder = problem.backwardInOrder;
  int64_t mask = problem.alignBytes - 1;
  for (const auto &value : problem.values) {
    graph.size.push_back((value.sizeBytes + mask) & ~mask);
    graph.preexisting.push_back(value.preexisting);
    graph.liveAtEnd.push_back(value.liveAtEnd);
  }
  std::vector<std::vector<int32_t>> readers(problem.values.size());
  for (int32_t o = 0; o < graph.opCount; ++o) {
    const auto &op = problem.ops[o];
    graph.inputs.addRow(op.inputs);
    graph.outputs.addRow(op.outputs);
    graph.cost.push_back(op.costUs);
    graph.again.push_back(op.timeUs(true));
    graph.inPlace.push_back(op.inPlace);
    graph.optionalInputs.addRow(op.optionalInputs);
    graph.onceUs += op.costUs;
    graph.workspace.push_back((op.workspaceBytes + mask) & ~mask);
    bool marked = false;
    for (int32_t v : op.outputs)
      marked |= problem.values[v].keep;
    graph.rerun.push_back(graph.isForward(o) && op.recomputable && !marked);
    for (int32_t v : op.inputs)
      readers[v].push_back(o);
  }
  for (const auto &row : readers)
    graph.readers.addRow(row);
  return graph;
}

InstantOrder::InstantOrder(const RecomputeGraph &graph, int32_t op)
    : before(graph.opCount, 0), behind(graph.opCount, 0) {
  for (int32_t o = op; o >= 0; --o) {
    if (o != op && !graph.isForward(o) && graph.backwardInOrder)
      before[o] = 1;
    if (o == op || before[o])
      for (int32_t v : graph.inputs[o])
        if (graph.producer[v] >= 0)
          before[graph.producer[v]] = 1;
  }
  for (int32_t o = op + 1; o < graph.opCount; ++o) {
    behind[o] = graph.backwardInOrder;
    for (int32_t v : graph.inputs[o])
      if (int32_t p = graph.producer[v]; p >= 0)
        behind[o] |= p == op || behind[p];
  }
}

int64_t unavoidableAt(const RecomputeGraph &graph, int32_t op,
                      const InstantOrder &order) {
  int64_t bytes = graph.workspace[op];
  std::vector<char> held(graph.valueCount, 0);
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    int32_t p = graph.producer[v];
    if (graph.isForwardValue(v) || (p >= 0 && !order.before[p]))
      continue;
    held[v] = graph.liveAtEnd[v];
    for (int32_t o : graph.readers[v])
      held[v] |= order.behind[o];
    bytes += held[v] ? graph.size[v] : 0;
  }
  for (int32_t v : graph.outputs[op])
    bytes += graph.size[v];
  for (int32_t v : graph.inputs[op])
    bytes += held[v] ? 0 : graph.size[v];
  return bytes - graph.mostSharedBytes(op, [&](int32_t v) { return !held[v]; });
}

std::vector<int64_t> unavoidableBytes(const RecomputeGraph &graph) {
  std::vector<int64_t> bytes(graph.opCount, 0);
  // Values that no schedule produces after the instant, and something after it reads.
  std::vector<char> held(graph.valueCount, 0);
  int64_t level = 0;
  auto hold = [&](int32_t v) {
    if (held[v] || graph.isForwardValue(v))
      return;
    held[v] = 1;
    level += graph.size[v];
  };
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.liveAtEnd[v])
      hold(v);
  for (int32_t o = graph.opCount; o-- > 0;) {
    if (!graph.isForward(o)) {
      for (int32_t v : graph.outputs[o])
        if (held[v])
          held[v] = 0, level -= graph.size[v];
    }
    int64_t touched = graph.workspace[o];
    for (int32_t v : graph.outputs[o])
      touched += graph.size[v];
    for (int32_t v : graph.inputs[o])
      touched += held[v] ? 0 : graph.size[v];
    // When a forward operation runs is the schedule's choice: what is held then is open.
    for (int32_t v : graph.inputs[o])
      touched += graph.isForward(o) && held[v] ? graph.size[v] : 0;
    touched -= graph.mostSharedBytes(o, [&](int32_t v) { return !held[v]; });
    bytes[o] = (graph.isForward(o) ? 0 : level) + touched;
    if (!graph.isForward(o))
      for (int32_t v : graph.inputs[o])
        hold(v);
  }
  return bytes;
}

} // namespace sluice
