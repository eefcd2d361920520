#include "passes/TensorFacts.h"

#include "passes/NamePatterns.h"
#include "passes/lowering/ProgramBuilder.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace sluice {
namespace {

class Facts {
public:
  Facts(const StepProblem &step, const RecomputeSolution &solution)
      : step(step), problem(step.problem), builder(step.context()) {
    runs.assign(problem.ops.size(), 0);
    for (const Execution &execution : solution.schedule)
      runs[execution.op] += execution.again;
    needed.assign(problem.values.size(), false);
    for (const RecomputeProblem::Op &op : problem.ops)
      for (int32_t value : op.inputs)
        needed[value] = needed[value] || op.backward;
  }

  ArrayAttr list() {
    for (size_t op = 0; op < problem.ops.size(); ++op)
      for (int32_t value : problem.ops[op].outputs)
        if (problem.values[value].sizeBytes > 0)
          add(step.valueName(value), choiceOf(op, value), op,
              problem.values[value].sizeBytes, "");
    for (size_t op = 0; op < problem.ops.size(); ++op)
      if (!problem.ops[op].backward)
        addFused(op);
    addRenamed();
    return builder.getArrayAttr(facts);
  }

private:
  StringRef choiceOf(size_t op, int32_t value) const {
    if (problem.ops[op].backward)
      return "backward";
    if (runs[op] > 0)
      return "recomputed";
    if (!needed[value] && !problem.values[value].liveAtEnd)
      return "passing";
    if (!problem.ops[op].recomputable)
      return "fixed";
    return problem.values[value].keep ? "marked" : "kept";
  }

  void add(const std::string &name, StringRef choice, size_t op, int64_t bytes,
           const std::string &of) {
    NamedAttrList fields;
    fields.set("name", builder.getStringAttr(name));
    fields.set("choice", builder.getStringAttr(choice));
    fields.set("bytes", builder.getI64IntegerAttr(bytes));
    fields.set("again_us", builder.getF64FloatAttr(problem.ops[op].timeUs(true)));
    fields.set("runs", builder.getI64IntegerAttr(runs[op]));
    if (!of.empty())
      fields.set("of", builder.getStringAttr(of));
    facts.push_back(fields.getDictionary(builder.getContext()));
    SmallVector<StringRef> parts;
    StringRef(name).split(parts, '+');
    for (StringRef part : parts)
      named.insert(part);
  }

  /// Nodes whose values a kernel never stores.
  void addFused(size_t op) {
    auto region = dyn_cast<graph::RegionOp>(step.operations()[op]);
    if (!region || problem.ops[op].outputs.empty())
      return;
    std::string of = step.valueName(problem.ops[op].outputs.front());
    for (Operation &inner : region.getBody().front().without_terminator())
      if (!isa<graph::ConstantOp>(inner))
        visitNames(inner.getLoc(), [&](StringRef name) {
          if (!named.contains(name))
            add(name.str(), "fused", op, 0, of);
        });
  }

  /// Nodes that only give other names to bytes of the forward part.
  void addRenamed() {
    llvm::DenseMap<Value, size_t> producers;
    for (auto [i, op] : llvm::enumerate(step.operations()))
      for (Value result : op->getResults())
        if (!problem.ops[i].backward)
          producers[result] = i;
    for (Operation &op : *step.operations().front()->getBlock()) {
      if (!step.isRenaming(&op))
        continue;
      Value root = step.rootOf(op.getResult(0));
      auto producer = producers.find(root);
      std::string name = nodeNames(op.getLoc());
      if (producer != producers.end() && !name.empty() && !named.contains(name))
        add(name, "renamed", producer->second, 0, valueNames(root));
    }
  }

  const StepProblem &step;
  const RecomputeProblem &problem;
  Builder builder;
  SmallVector<Attribute> facts;
  llvm::StringSet<> named;   // nodes
  std::vector<int64_t> runs; // by operation: beyond the first
  std::vector<bool> needed;  // by value: the backward part reads it
};

} // namespace

ArrayAttr tensorFacts(const StepProblem &step, const RecomputeSolution &solution) {
  return Facts(step, solution).list();
}

std::string describeTensors(func::FuncOp entry, ArrayRef<std::string> keep) {
  auto module = entry->getParentOfType<ModuleOp>();
  OwningOpRef<ModuleOp> copy = module.clone();
  StepProblem step(copy->lookupSymbol<func::FuncOp>(entry.getSymName()), keep);
  if (std::string wrong = step.keepError(); !wrong.empty())
    return wrong;
  RecomputeSolution solution = planByPolicy(step.problem, {});
  if (solution.error.empty())
    entry->setAttr(tensorFactsAttr, tensorFacts(step, solution));
  return {};
}

} // namespace sluice
