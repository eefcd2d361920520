#include "passes/FisherLabels.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/LossKinds.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;
using graph::tensorType;

/// Keys the draws of labels; what the import numbers is far below.
static constexpr int64_t drawId = 0x66697368;

static InFlightDiagnostic specError(func::FuncOp entry) {
  return emitError(UnknownLoc::get(entry.getContext()));
}

LogicalResult FisherLabels::findRows() {
  auto module = entry->getParentOfType<ModuleOp>();
  auto name = module->getAttrOfType<StringAttr>("graph.logits_output");
  Value logits = name ? resultNamed(entry, name.getValue()) : Value();
  if (!logits)
    return specError(entry) << "'continual.ewc.fisher.labels: " << spec.penalty.labels
                            << "' needs logits, the model gives none";
  logitsName = name.str();
  RankedTensorType type = tensorType(logits);
  if (classAxis(spec.loss, type.getRank()) != type.getRank() - 1)
    return specError(entry) << "'continual.ewc.fisher.labels: " << spec.penalty.labels
                            << "' needs classes in the last dimension of '" << logitsName
                            << "', " << type << "; take 'true'";
  classes = type.getShape().back();
  rows = type.getNumElements() / classes;
  module->setAttr("graph.fisher_classes",
                  Builder(module.getContext()).getI64IntegerAttr(classes));
  auto batch = module->getAttrOfType<IntegerAttr>("graph.batch").getInt();
  if (spec.penalty.labels == "all" && rows != batch)
    return specError(entry) << "'continual.ewc.fisher.labels: all' needs one label per "
                            << "sample, '" << logitsName << "' has " << rows / batch
                            << " rows of each; take 'sampled'";
  return success();
}

/// exp(z - max z), [rows, classes]; z may be log probabilities too.
Value FisherLabels::exponents(GraphBuilder &b) {
  Value z =
      b.cast(b.reshape(resultNamed(entry, logitsName), {rows, classes}), b.getF32Type());
  Value largest = b.reduce(z, "max", {1}, /*keep=*/true);
  return b.exp(b.sub(z, b.broadcastLike(largest, z)));
}

/// The first class up to which the probabilities exceed a uniform number.
Value FisherLabels::drawn(OpBuilder &builder) {
  GraphBuilder b(NameLoc::get(builder.getStringAttr("fisher/labels")), builder);
  auto batch = entry->getParentOfType<ModuleOp>()
                   ->getAttrOfType<IntegerAttr>("graph.batch")
                   .getInt();
  auto control = [&](StringRef name) { return reads.control(name, b.getI64Type()); };
  Value u = b.create<graph::RandomUniformOp>(
      control("control/seed"), control("control/update"), control("control/sample"),
      ArrayRef<int64_t>{batch, rows / batch}, drawId, /*batched=*/true);
  Value weights = exponents(b);
  Value sums = b.make<graph::CumSumOp>(weights, int64_t{1}, /*exclusive=*/false,
                                       /*reverse=*/false);
  Value total = b.sum(weights, {1}, /*keep=*/true);
  Value limit = b.mul(b.reshape(u, {rows, 1}), total);
  Value below = b.compare(sums, "le", b.broadcastLike(limit, sums));
  Value label = b.sum(b.cast(below, b.getF32Type()), {1}, /*keep=*/false);
  return b.make<graph::MinOp>(label, b.splatLike(label, double(classes - 1)));
}

LogicalResult FisherLabels::replace() {
  if (spec.penalty.labels == "true")
    return success();
  if (failed(findRows()))
    return failure();
  BlockArgument given;
  for (unsigned i = 0; i < entry.getNumArguments(); ++i)
    if (argumentName(entry, i) == spec.loss.labels)
      given = entry.getArgument(i);
  // Behind the logits, before the loss.
  OpBuilder builder(entry.getContext());
  Operation *logits = resultNamed(entry, logitsName).getDefiningOp();
  if (!given || !logits)
    return specError(entry) << "'continual.ewc.fisher.labels: " << spec.penalty.labels
                            << "' needs labels and computed logits";
  builder.setInsertionPointAfter(logits);
  GraphBuilder b(NameLoc::get(builder.getStringAttr("fisher/labels")), builder);
  llvm::SmallPtrSet<Operation *, 4> own;
  RankedTensorType type = tensorType(given);
  Value label;
  if (spec.penalty.labels == "sampled")
    label = b.reshape(b.cast(drawn(builder), type.getElementType()), type.getShape());
  else
    label = b.broadcast(
        b.cast(reads.control("control/class", b.getI64Type()), type.getElementType()),
        type.getShape());
  Value ignored =
      b.compare(given, "eq", b.splatLike(given, double(spec.loss.ignoreIndex)));
  Value chosen = b.select(ignored, given, label);
  given.replaceUsesWithIf(chosen, [&](OpOperand &use) {
    Operation *user = use.getOwner();
    return user != ignored.getDefiningOp() && user != chosen.getDefiningOp() &&
           chosen.getDefiningOp()->isBeforeInBlock(user);
  });
  return success();
}

namespace {

/// The cotangent of one value under a sum, over the operations behind it.
class Behind {
public:
  Behind(func::FuncOp entry, Value from) : from(from), builder(returnOf(entry)) {
    depends.insert(from);
    for (Operation *op = from.getDefiningOp()->getNextNode(); op; op = op->getNextNode())
      if (llvm::any_of(op->getOperands(), [&](Value v) { return depends.contains(v); })) {
        ops.push_back(op);
        for (Value result : op->getResults())
          if (isa<FloatType>(tensorType(result).getElementType()))
            depends.insert(result);
      }
  }

  FailureOr<Value> cotangentUnder(Value loss) {
    GraphBuilder b(loss.getLoc(), builder);
    cotangents[loss] = b.splatLike(loss, 1);
    for (Operation *op : llvm::reverse(ops))
      if (failed(propagate(op)))
        return failure();
    return cotangents.lookup(from);
  }

private:
  LogicalResult propagate(Operation *op) {
    SmallVector<Value> results;
    for (Value result : op->getResults())
      results.push_back(cotangents.lookup(result));
    if (llvm::none_of(results, [](Value v) { return bool(v); }))
      return success();
    SmallVector<bool> needed;
    for (Value operand : op->getOperands())
      needed.push_back(depends.contains(operand));
    auto differentiable = dyn_cast<graph::Differentiable>(op);
    if (!differentiable)
      return op->emitError("the loss has no gradient in the logits");
    graph::GradientContext context(results, needed);
    if (failed(differentiable.buildGradient(builder, context)))
      return failure();
    for (auto [operand, part] : llvm::zip_equal(op->getOperands(), context.gradients())) {
      if (!part)
        continue;
      Value &sum = cotangents[operand];
      sum =
          sum ? builder.create<graph::AddOp>(part.getLoc(), sum, part).getResult() : part;
    }
    return success();
  }

  Value from;
  OpBuilder builder;
  SmallVector<Operation *> ops;
  llvm::DenseSet<Value> depends;
  DenseMap<Value, Value> cotangents;
};

} // namespace

LogicalResult FisherLabels::weigh(Value &loss, Value &cotangent) {
  if (spec.penalty.labels != "all")
    return success();
  Value logits = resultNamed(entry, logitsName);
  auto found = Behind(entry, logits).cotangentUnder(loss);
  if (failed(found) || !*found)
    return failed(found)
               ? failure()
               : LogicalResult(specError(entry)
                               << "the loss does not depend on '" << logitsName << "'");
  OpBuilder builder(returnOf(entry));
  GraphBuilder b(NameLoc::get(builder.getStringAttr("fisher/weights")), builder);
  Value weights = exponents(b);
  Value numbers = b.make<graph::IotaOp>(ArrayRef<int64_t>{rows, classes}, int64_t{1});
  Value chosen = b.broadcastLike(reads.control("control/class", b.getI64Type()), numbers);
  Value isChosen = b.compare(numbers, "eq", chosen);
  Value one = b.select(isChosen, weights, b.splatLike(weights, 0));
  Value share = b.div(b.sum(one, {1}, /*keep=*/true), b.sum(weights, {1}, /*keep=*/true));
  Value root = b.reshape(b.sqrt(share), {rows, 1});
  Value table = b.reshape(*found, {rows, classes});
  root = b.broadcastLike(b.cast(root, tensorType(table).getElementType()), table);
  cotangent = b.reshape(b.mul(table, root), tensorType(logits).getShape());
  loss = logits;
  return success();
}

} // namespace sluice
