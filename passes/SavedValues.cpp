#include "passes/SavedValues.h"

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/SavedMark.h"
#include "passes/DelayedScale.h"
#include "passes/EntryFunctions.h"
#include "passes/NamePatterns.h"

#include "llvm/ADT/SetVector.h"

#include <set>

using namespace mlir;

namespace sluice {
namespace {

bool isBackward(Operation *op) { return op->hasAttr(backwardAttr); }

std::string nodeOf(Operation *op) {
  std::string first = "value";
  bool found = false;
  visitNames(op->getLoc(), [&](StringRef name) {
    if (!found)
      first = name.str();
    found = true;
  });
  return first;
}

class SavedValues {
public:
  SavedValues(func::FuncOp entry, const TrainingSpec &spec, StateSymbols &state)
      : entry(entry), spec(spec), state(state) {}

  LogicalResult run() {
    findSampled();
    std::vector<bool> used(spec.precision.rules.size(), false);
    Block &block = entry.getBody().front();
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
      if (const StorageRule *rule = ruleFor(&op)) {
        used[rule - spec.precision.rules.data()] = true;
        save(op.getResult(0), *rule);
      }
    for (Operation &op : block)
      op.removeAttr(backwardAttr);
    for (auto [rule, isUsed] : llvm::zip_equal(spec.precision.rules, used))
      if (!rule.saved.empty() && !isUsed)
        return matchesNothing(rule);
    if (count > 0)
      report(entry->getParentOfType<ModuleOp>(),
             "storage: " + std::to_string(count) +
                 " values of the forward part are kept for the backward part in " +
                 std::to_string(bytes) + " bytes instead of " +
                 std::to_string(wideBytes) + "; numbers change");
    return success();
  }

private:
  /// What does not depend on samples is state, which rules for parameters name.
  void findSampled() {
    for (BlockArgument argument : entry.getArguments())
      sampled.insert(argument);
    for (Operation &op : entry.getBody().front())
      if (!isBackward(&op) && llvm::any_of(op.getOperands(), [&](Value operand) {
            return sampled.contains(operand);
          }))
        for (Value result : op.getResults())
          sampled.insert(result);
  }

  /// The last rule that names the operation, if the backward part reads its result. Other
  /// results are statistics that go with the first.
  const StorageRule *ruleFor(Operation *op) {
    if (isBackward(op) || op->getNumResults() == 0)
      return nullptr;
    Value value = op->getResult(0);
    bool isKept = sampled.contains(value) &&
                  graph::tensorType(value).getElementType().isF32() &&
                  llvm::any_of(value.getUsers(), isBackward);
    if (!isKept)
      return nullptr;
    const StorageRule *found = nullptr;
    for (const StorageRule &rule : spec.precision.rules)
      if (!rule.saved.empty() && namesAny({rule.match}, op->getLoc()))
        found = &rule;
    return found;
  }

  void save(Value value, const StorageRule &rule) {
    StoredFormat format = *storedFormat(rule.saved);
    ArrayRef<int64_t> shape = graph::tensorType(value).getShape();
    std::span<const int64_t> sizes(shape.data(), shape.size());
    std::string node = nodeOf(value.getDefiningOp());
    if (!isWhole(format, sizes)) {
      decide(entry->getParentOfType<ModuleOp>(), node,
             "precision: kept for the backward part in f32: its elements do not divide "
             "into whole blocks of " +
                 rule.saved);
      return;
    }
    llvm::SmallSetVector<Operation *, 4> readers;
    for (Operation *user : value.getUsers())
      if (isBackward(user))
        readers.insert(user);
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfter(value.getDefiningOp());
    SmallVector<Value> inputs = {value};
    bool isDelayed = rule.isDelayed && traitsOf(format).scale == ScaleKind::real &&
                     traitsOf(format).blockColumns == 0;
    if (isDelayed)
      inputs.push_back(delayed(value, format, node, builder));
    StringRef name(traitsOf(format).name);
    auto stored = builder.create<graph::QuantizeOp>(value.getLoc(), inputs, name,
                                                    isDelayed, /*stochastic=*/false);
    stored->setAttr(graph::savedAttr, builder.getStringAttr("store"));
    int64_t site = 0;
    // Users are listed last first.
    for (Operation *reader : llvm::reverse(readers)) {
      builder.setInsertionPoint(reader);
      auto decoded = builder.create<graph::DequantizeOp>(
          value.getLoc(), stored->getResults(), name, shape, site++);
      decoded->setAttr(graph::savedAttr, builder.getStringAttr("load"));
      reader->replaceUsesOfWith(value, decoded);
    }
    count += 1;
    bytes += storedBytes(format, sizes);
    wideBytes += storedBytes(StoredFormat::fp32, sizes);
  }

  /// The scale by values of updates before; the largest of now goes to those behind.
  Value delayed(Value value, StoredFormat format, const std::string &node,
                OpBuilder &builder) {
    std::string key = "saved/" + node;
    for (int i = 2; !keys.insert(key).second; ++i)
      key = "saved/" + node + "/" + std::to_string(i);
    EntryReads reads(entry, state);
    DelayedScale scale(key, /*firstLargest=*/0, "", state, value.getContext());
    bool isWindow = spec.addsGradients() || spec.ranks > 1;
    scale.observe(value, isWindow, /*moves=*/Value(), reads, builder);
    return scale.value(format, reads, builder);
  }

  LogicalResult matchesNothing(const StorageRule &rule) {
    std::vector<std::string> names;
    for (Operation &op : entry.getBody().front())
      visitNames(op.getLoc(), [&](StringRef name) { names.push_back(name.str()); });
    return entry.emitError()
           << "'precision.rules': the backward part reads no value of a node that '"
           << (rule.match.empty() ? rule.part : rule.match) << "' matches, so there is "
           << "nothing to be saved as " << rule.saved
           << nearestNames(rule.match.empty() ? rule.part : rule.match, names);
  }

  func::FuncOp entry;
  const TrainingSpec &spec;
  StateSymbols &state;
  llvm::DenseSet<Value> sampled;
  std::set<std::string> keys;
  int64_t count = 0, bytes = 0, wideBytes = 0;
};

} // namespace

LogicalResult storeSavedValues(func::FuncOp entry, const TrainingSpec &spec,
                               StateSymbols &state) {
  return SavedValues(entry, spec, state).run();
}

} // namespace sluice
