#include "passes/ReverseMode.h"

#include "ir/graph/GraphBuilder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {

static bool isReal(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

void ReverseMode::findActive() {
  for (Operation &op : entry.getBody().front()) {
    bool depends =
        llvm::any_of(op.getOperands(), [&](Value v) { return active.contains(v); });
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      auto parameter = SymbolTable::lookupNearestSymbolFrom<graph::ParameterOp>(
          read, read.getSymbolAttr());
      depends = parameter && parameter.getTrainable();
    }
    // Indices, masks and other integers carry no gradient.
    for (Value result : op.getResults())
      if (depends && isReal(result))
        active.insert(result);
  }
}

void ReverseMode::accumulate(Value value, Value part, OpBuilder &builder) {
  assert(value.getType() == part.getType() && "a cotangent has the type of its value");
  Value &sum = cotangents[value];
  sum = sum ? builder.create<graph::AddOp>(part.getLoc(), sum, part).getResult() : part;
}

LogicalResult ReverseMode::propagate(Operation *op, OpBuilder &builder) {
  SmallVector<Value> results;
  for (Value result : op->getResults())
    results.push_back(cotangents.lookup(result));
  if (llvm::none_of(results, [](Value v) { return static_cast<bool>(v); }))
    return success();
  if (auto read = dyn_cast<graph::ReadOp>(op)) {
    Value &sum = bySymbol[read.getSymbol()]; // a tied weight is read more than once
    sum = sum ? builder.create<graph::AddOp>(op->getLoc(), sum, results[0]).getResult()
              : results[0];
    return success();
  }
  SmallVector<bool> needed;
  for (Value operand : op->getOperands())
    needed.push_back(active.contains(operand));
  auto differentiable = dyn_cast<graph::Differentiable>(op);
  if (!differentiable) {
    missing.push_back(op);
    return success();
  }
  graph::GradientContext context(results, needed);
  if (failed(differentiable.buildGradient(builder, context)))
    return failure();
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    if (needed[i] && context.gradients()[i])
      accumulate(operand, context.gradients()[i], builder);
  return success();
}

/// The model's name of an operation.
static std::string nodeName(Operation *op) {
  if (auto named = op->getLoc()->findInstanceOf<NameLoc>())
    return named.getName().str();
  return "unnamed";
}

void ReverseMode::reportMissing() {
  InFlightDiagnostic error = entry.emitError();
  error << missing.size()
        << " operation(s) between the loss and a trainable parameter have no "
        << "gradient; freeze what lies before them";
  for (Operation *op : llvm::reverse(missing))
    error.attachNote(op->getLoc())
        << "'" << op->getName().stripDialect() << "' (node '" << nodeName(op) << "')";
}

LogicalResult ReverseMode::run(Value loss, Value seed) {
  findActive();
  Block &body = entry.getBody().front();
  OpBuilder builder(body.getTerminator());
  SmallVector<Operation *> forward;
  for (Operation &op : body.without_terminator())
    forward.push_back(&op);
  graph::GraphBuilder b(loss.getLoc(), builder);
  if (active.contains(loss))
    cotangents[loss] = seed ? seed : b.splatLike(loss, 1);
  bool failedOne = false;
  // Reverse program order: every use of a value comes before its definition, always in
  // the same order.
  for (Operation *op : llvm::reverse(forward))
    if (llvm::any_of(op->getResults(), [&](Value v) { return active.contains(v); }))
      failedOne |= failed(propagate(op, builder));
  if (!missing.empty())
    reportMissing();
  return failure(failedOne || !missing.empty());
}

} // namespace sluice
