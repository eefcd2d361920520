// Mixed precision as explicit types. Products (PrecisionRule) take 16-bit operands, sum
// in f32 and round their result once; everything else computes in f32. A value is rounded
// where it is an operand or a result of a product, for all of its readers, so that there
// is one of it; operations that only move elements carry the 16 bits on. Extrema alone
// are exact for other readers: gradients compare with them. Which values these are
// follows from the operations alone, never from what is fused or kept, and a value
// computed again has the type of the first.
//
// Gradients of parameters stay f32 sums. Parameters that products read are stored in 16
// bits, with what completes them to f32 as `precision.master` says.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"
#include "passes/LaunchCosts.h"
#include "passes/NamePatterns.h"
#include "passes/NarrowState.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"
#include "passes/StoredState.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_ASSIGNPRECISION
#include "passes/Passes.h.inc"

namespace {

graph::PrecisionKind kindOf(Operation *op) {
  auto rule = dyn_cast_or_null<graph::PrecisionRule>(op);
  return rule ? rule.precision() : graph::PrecisionKind::Wide;
}

bool isF32(Value value) { return graph::tensorType(value).getElementType().isF32(); }

/// The operands whose elements an operation moves.
OperandRange movedOperands(Operation *op) {
  return isa<graph::ConcatOp>(op) ? op->getOperands() : op->getOperands().take_front(1);
}

/// Gradients of extrema find their elements by comparing with the result.
bool isExtremum(Operation *op) {
  if (auto reduce = dyn_cast_or_null<graph::ReduceOp>(op))
    return reduce.getKind() == "max" || reduce.getKind() == "min";
  if (auto scatter = dyn_cast_or_null<graph::ScatterElementsOp>(op))
    return scatter.getReduction() == "max" || scatter.getReduction() == "min";
  return false;
}

/// Names of parameters and of nodes whose products stay in f32.
class KeptNames {
public:
  explicit KeptNames(const PrecisionSpec &spec) : used(spec.keep.size()) {
    patterns = spec.keep;
  }

  bool match(Operation *op) {
    bool found = false;
    for (auto [i, pattern] : llvm::enumerate(patterns)) {
      bool here = namesAny({pattern}, op->getLoc());
      for (Value operand : op->getOperands())
        if (auto read = readOf(operand))
          here |= matchesName(pattern, modelName(read.getSymbol()));
      used[i] = used[i] || here;
      found |= here;
    }
    return found;
  }

  /// Of a parameter, stored in a format or not, and transposed or not.
  static graph::ReadOp readOf(Value operand) {
    while (kindOf(operand.getDefiningOp()) == graph::PrecisionKind::Moves)
      operand = operand.getDefiningOp()->getOperand(0);
    if (auto decoded = operand.getDefiningOp<graph::DequantizeOp>())
      operand = decoded.getStored()[0];
    return operand.getDefiningOp<graph::ReadOp>();
  }

  /// A pattern may name what no product reads: that it exists is enough.
  void note(StringRef name) {
    for (auto [i, pattern] : llvm::enumerate(patterns))
      used[i] = used[i] || matchesName(pattern, name);
  }

  /// The first pattern that names the parameter, or null.
  const std::string *find(StringRef parameter) const {
    for (const std::string &pattern : patterns)
      if (matchesName(pattern, parameter))
        return &pattern;
    return nullptr;
  }

  std::vector<std::string> unused() const {
    std::vector<std::string> result;
    for (auto [pattern, isUsed] : llvm::zip_equal(patterns, used))
      if (!isUsed)
        result.push_back(pattern);
    return result;
  }

private:
  static bool matchesName(const std::string &pattern, StringRef name) {
    auto glob = llvm::GlobPattern::create(pattern);
    if (glob)
      return glob->match(name);
    llvm::consumeError(glob.takeError());
    return pattern == name;
  }

  std::vector<std::string> patterns;
  std::vector<bool> used;
};

/// One entry: first what is rounded, then the rewrite.
class EntryPrecision {
public:
  EntryPrecision(func::FuncOp entry, FloatType narrow, KeptNames &kept)
      : entry(entry), narrow(narrow), kept(kept) {}

  void mark() {
    for (const NamedValue &result : results(entry))
      if (StringRef(result.name).starts_with("grad/"))
        exempt(result.value);
    for (Operation &op : entry.getBody().front())
      if (isNarrowProduct(&op)) {
        products.insert(&op);
        for (Value operand : roundedOperands(&op))
          markRoots(operand);
      }
  }

  /// Symbols of the parameters that are read in 16 bits.
  template <class F> void forEachParameter(F visit) const {
    for (Value root : rounded)
      if (auto read = root.getDefiningOp<graph::ReadOp>();
          read && read.getSymbol().starts_with("param/"))
        visit(read.getSymbol());
  }

  void rewrite(const llvm::StringSet<> &narrowParameters) {
    Block &block = entry.getBody().front();
    OpBuilder builder = OpBuilder::atBlockBegin(&block);
    for (BlockArgument argument : block.getArguments())
      if (rounded.contains(argument))
        round(argument, builder);
    for (Operation &op : llvm::make_early_inc_range(block)) {
      builder.setInsertionPointAfter(&op);
      auto read = dyn_cast<graph::ReadOp>(op);
      if (read && narrowParameters.contains(read.getSymbol()))
        readNarrow(read, builder);
      else if (products.contains(&op))
        rewriteProduct(&op, builder);
      else if (kindOf(&op) == graph::PrecisionKind::Moves && isF32(op.getResult(0)))
        rewriteMove(&op, builder);
      else
        for (Value result : op.getResults())
          if (rounded.contains(result))
            round(result, builder);
    }
    for (Operation *move : llvm::reverse(copied))
      if (move->use_empty())
        move->erase();
  }

  size_t productCount() const { return products.size(); }

private:
  bool isNarrowProduct(Operation *op) {
    return kindOf(op) == graph::PrecisionKind::Product && isF32(op->getOperand(0)) &&
           !kept.match(op);
  }

  /// The products that a gradient is the sum of keep their f32 results.
  void exempt(Value gradient) {
    Operation *op = gradient.getDefiningOp();
    if (!op || !exempted.insert(op).second)
      return;
    if (kindOf(op) == graph::PrecisionKind::Moves)
      for (Value operand : movedOperands(op))
        exempt(operand);
    if (isa<graph::AddOp>(op))
      for (Value operand : op->getOperands())
        exempt(operand);
  }

  void markRoots(Value value) {
    if (!seen.insert(value).second)
      return;
    Operation *op = value.getDefiningOp();
    if (kindOf(op) == graph::PrecisionKind::Moves)
      for (Value operand : movedOperands(op))
        markRoots(operand);
    else
      rounded.insert(value);
  }

  /// All readers of `value` read `stored` instead, widened.
  void widen(Value value, Value stored, OpBuilder &builder) {
    auto wide =
        builder.create<graph::CastOp>(value.getLoc(), stored, builder.getF32Type());
    value.replaceAllUsesExcept(wide, stored.getDefiningOp());
  }

  void round(Value value, OpBuilder &builder) {
    if (!isF32(value))
      return;
    auto stored = builder.create<graph::CastOp>(value.getLoc(), value, narrow);
    if (isExtremum(value.getDefiningOp()))
      copies[value] = stored;
    else
      widen(value, stored, builder);
  }

  void readNarrow(graph::ReadOp read, OpBuilder &builder) {
    auto stored = builder.create<graph::ReadOp>(
        read.getLoc(), graph::tensorType(read.getValue()).clone(narrow),
        read.getSymbol());
    widen(read.getValue(), stored, builder);
    read.erase();
  }

  /// What a widened value was before, or the copy beside an exact one; null for others.
  Value narrowed(Value value) const {
    if (Value copy = copies.lookup(value))
      return copy;
    auto cast = value.getDefiningOp<graph::CastOp>();
    bool isWidened = cast && graph::tensorType(cast.getX()).getElementType() == narrow;
    return isWidened ? cast.getX() : Value();
  }

  Operation *rebuild(Operation *op, ValueRange operands, Type element, bool roundTo,
                     OpBuilder &builder) {
    SmallVector<NamedAttribute> attributes(op->getAttrs());
    if (roundTo)
      attributes.push_back(builder.getNamedAttr("round_to", TypeAttr::get(narrow)));
    SmallVector<Type> types(op->getResultTypes());
    auto rule = cast<graph::PrecisionRule>(op);
    for (unsigned i = 0; i < rule.roundedResults(); ++i)
      types[i] = cast<RankedTensorType>(types[i]).clone(element);
    OperationState state(op->getLoc(), op->getName().getStringRef(), operands, types,
                         attributes);
    return builder.create(state);
  }

  static OperandRange roundedOperands(Operation *op) {
    return op->getOperands().take_front(cast<graph::PrecisionRule>(op).roundedOperands());
  }
  static ResultRange roundedResults(Operation *op) {
    return op->getResults().take_front(cast<graph::PrecisionRule>(op).roundedResults());
  }

  void rewriteProduct(Operation *op, OpBuilder &builder) {
    SmallVector<Value> operands(op->getOperands());
    for (auto [i, operand] : llvm::enumerate(roundedOperands(op)))
      operands[i] = narrowed(operand);
    // What another product reads too is rounded, as are the terms of longer sums.
    ResultRange results = roundedResults(op);
    bool isSum = exempted.contains(op) && llvm::none_of(results, [&](Value result) {
                   return rounded.contains(result);
                 });
    Type element = isSum ? Type(builder.getF32Type()) : narrow;
    Operation *product = rebuild(op, operands, element, !isSum, builder);
    for (auto [i, result] : llvm::enumerate(op->getResults()))
      if (isSum || i >= results.size())
        result.replaceAllUsesWith(product->getResult(i));
      else
        widen(result, product->getResult(i), builder);
    op->erase();
  }

  void rewriteMove(Operation *op, OpBuilder &builder) {
    bool movesExact = copies.contains(op->getOperand(0)) && op->getNumOperands() == 1;
    if (movesExact && !seen.contains(op->getResult(0)))
      return;
    SmallVector<Value> operands(op->getOperands());
    for (auto [i, operand] : llvm::enumerate(movedOperands(op))) {
      operands[i] = narrowed(operand);
      if (!operands[i])
        return;
    }
    Operation *moved = rebuild(op, operands, narrow, false, builder);
    if (movesExact) {
      copies[op->getResult(0)] = moved->getResult(0);
      copied.push_back(op);
      return;
    }
    widen(op->getResult(0), moved->getResult(0), builder);
    op->erase();
  }

  func::FuncOp entry;
  FloatType narrow;
  KeptNames &kept;
  llvm::SmallSetVector<Value, 32> rounded; // roots: no moves
  llvm::DenseSet<Value> seen;
  llvm::DenseMap<Value, Value> copies; // of extrema, which other readers have exact
  SmallVector<Operation *> copied;     // moves of these
  llvm::DenseSet<Operation *> products, exempted;
};

class AssignPrecision : public impl::AssignPrecisionBase<AssignPrecision> {
public:
  explicit AssignPrecision(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!spec.precision.isNarrow())
      return;
    Builder b(module.getContext());
    bool half = spec.precision.compute == "amp_fp16";
    FloatType narrow = half ? FloatType(b.getF16Type()) : FloatType(b.getBF16Type());
    if (failed(checkDevice(narrow)))
      return signalPassFailure();
    KeptNames kept(spec.precision);
    std::vector<EntryPrecision> entries;
    llvm::StringSet<> parameters;
    size_t products = 0;
    for (auto entry : module.getOps<func::FuncOp>()) {
      EntryPrecision &precision = entries.emplace_back(entry, narrow, kept);
      precision.mark();
      precision.forEachParameter([&](StringRef symbol) { parameters.insert(symbol); });
      products = std::max(products, precision.productCount());
    }
    if (failed(checkRules(kept)))
      return signalPassFailure();
    for (EntryPrecision &entry : entries)
      entry.rewrite(parameters);
    report(module, "precision: up to " + std::to_string(products) +
                       " products of an entry in " + typeText(narrow) +
                       " with f32 sums; all else computes in f32");
    if (spec.precision.masterForm() == "none" && llvm::is_contained(spec.entries, "step"))
      report(module, "precision: weights have no master: updates round stochastically, "
                     "and what is below a step of " +
                         typeText(narrow) + " is kept on average only");
    narrowParameters(parameters, narrow, kept);
  }

private:
  /// A profile gives formats that the device lacks a rate of 0.
  LogicalResult checkDevice(Type narrow) {
    DeviceRates rates = deviceRates(getOperation());
    if (narrow.isBF16() ? rates.bf16Flops > 0 : rates.f16Flops > 0)
      return success();
    std::string has = rates.bf16Flops > 0  ? "bf16 ('amp_bf16') and f32 ('fp32')"
                      : rates.f16Flops > 0 ? "f16 ('amp_fp16') and f32 ('fp32')"
                                           : "f32 ('fp32')";
    auto device = getOperation()->getAttrOfType<DictionaryAttr>("graph.device");
    auto name = device ? device.getAs<StringAttr>("name") : StringAttr();
    return getOperation().emitError()
           << "'precision.compute' is '" << spec.precision.compute
           << "', but the device '" << (name ? name.getValue() : "cpu")
           << "' does not compute in " << typeText(narrow) << "; it has " << has;
  }

  LogicalResult checkRules(KeptNames &kept) {
    std::vector<std::string> names;
    for (auto parameter : getOperation().getOps<graph::ParameterOp>())
      if (parameter.getRole() == "parameter") {
        names.push_back(modelName(parameter.getSymName()).str());
        kept.note(names.back());
      }
    for (const std::string &pattern : kept.unused())
      return getOperation().emitError()
             << "'precision.rules': '" << pattern
             << "' matches no parameter and no product of the model"
             << nearestNames(pattern, names);
    return success();
  }

  void narrowParameters(const llvm::StringSet<> &symbols, FloatType narrow,
                        const KeptNames &kept) {
    StateSymbols state(getOperation());
    bool trains = llvm::is_contained(spec.entries, "step");
    for (graph::ParameterOp parameter : state.parameters()) {
      if (storedFormatOf(parameter))
        continue;
      bool isNarrow = symbols.contains(parameter.getSymName());
      std::string master =
          !parameter.getTrainable() || !trains ? "" : spec.precision.masterForm();
      if (isNarrow)
        storeNarrow(parameter, narrow, master, state);
      StringRef name = modelName(parameter.getSymName());
      const std::string *rule = kept.find(name);
      std::string why =
          isNarrow ? "computes in " + typeText(narrow) + ": products read it"
          : rule   ? "computes in f32: the rule '" + *rule + "' keeps it"
                   : "computes in f32: no product in " + typeText(narrow) + " reads it";
      decide(getOperation(), name, "precision: " + why);
    }
  }

  static std::string typeText(Type type) { return type.isBF16() ? "bf16" : "f16"; }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createAssignPrecision(const TrainingSpec &spec) {
  return std::make_unique<AssignPrecision>(spec);
}

} // namespace sluice
