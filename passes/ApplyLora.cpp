// Puts low-rank adapters (Hu et al., 2021) beside the weights that `lora` matches. What
// uses a weight gets a branch of two small products, so that the weight needs no gradient
// and its change is never materialised; `sluice export` adds it to the weight.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/InitialDraws.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_APPLYLORA
#include "passes/Passes.h.inc"

namespace {

using Sizes = SmallVector<int64_t>;

/// An operand that is the weight, through transposes: its dimension i is dimension
/// order[i] of the weight.
struct Use {
  OpOperand *operand;
  Sizes order;
};

void collectUses(Value value, const Sizes &order, std::vector<Use> &uses) {
  for (OpOperand &use : value.getUses()) {
    auto transpose = dyn_cast<graph::TransposeOp>(use.getOwner());
    if (!transpose) {
      uses.push_back({&use, order});
      continue;
    }
    Sizes moved;
    for (int64_t dim : transpose.getPermutation())
      moved.push_back(order[dim]);
    collectUses(transpose.getResult(), moved, uses);
  }
}

std::string nodeName(Operation *op) {
  auto named = op->getLoc()->findInstanceOf<NameLoc>();
  return named ? named.getName().str() : "unnamed";
}

/// Dimension of the weight that a product sums over; nothing for products of another
/// form than matrix times anything.
std::optional<int64_t> summedDimension(const Use &use) {
  auto product = dyn_cast<graph::ContractOp>(use.operand->getOwner());
  if (!product || use.order.size() != 2 || !product.getLhsBatch().empty())
    return std::nullopt;
  auto summed = use.operand->getOperandNumber() == 0 ? product.getLhsContract()
                                                     : product.getRhsContract();
  return summed.size() == 1 ? std::optional(use.order[summed[0]]) : std::nullopt;
}

/// The adapter of one weight: weight + scale * B A, with A [rank, in] and B [out, rank];
/// for the kernels of a convolution A [rank, in, kernel...] and B [out, rank, 1...].
class Adapter {
public:
  Adapter(ModuleOp module, graph::ParameterOp weight, const LoraRule &rule, uint64_t seed)
      : module(module), weight(weight), rule(rule), seed(seed),
        name(modelName(weight.getSymName())) {}

  LogicalResult build() {
    func::FuncOp forward = module.lookupSymbol<func::FuncOp>("forward");
    forward.walk([&](graph::ReadOp read) {
      auto straight = llvm::to_vector(llvm::seq<int64_t>(0, rank()));
      if (read.getSymbol() == weight.getSymName())
        collectUses(read.getValue(), straight, uses);
    });
    if (failed(findOrientation()) || failed(checkRank()))
      return failure();
    declare();
    EntryReads reads(forward, *state);
    for (const Use &use : uses)
      branch(use, reads);
    weight->setAttr("graph.adapted", UnitAttr::get(module.getContext()));
    return success();
  }

  int64_t elements() {
    return a.getTensorType().getNumElements() + b.getTensorType().getNumElements();
  }

  DictionaryAttr describe(Builder &builder) {
    return builder.getDictionaryAttr({
        builder.getNamedAttr("base", weight.getSymNameAttr()),
        builder.getNamedAttr("a", a.getSymNameAttr()),
        builder.getNamedAttr("b", b.getSymNameAttr()),
        builder.getNamedAttr("scale", builder.getF64FloatAttr(scale())),
        builder.getNamedAttr("input_first", builder.getBoolAttr(input == 0)),
    });
  }

private:
  int64_t rank() { return weight.getTensorType().getRank(); }
  ArrayRef<int64_t> shape() { return weight.getTensorType().getShape(); }
  double scale() const { return rule.alpha / static_cast<double>(rule.rank); }
  InFlightDiagnostic error() {
    return emitError(UnknownLoc::get(module.getContext()))
           << "'lora' matches '" << name << "', ";
  }

  /// Which dimension is the input's: the one the first product sums over.
  LogicalResult findOrientation() {
    if (uses.empty())
      return error() << "which no node uses";
    llvm::SmallPtrSet<Operation *, 4> users;
    std::optional<int64_t> summed;
    for (const Use &use : uses) {
      Operation *user = use.operand->getOwner();
      auto convolution = dyn_cast<graph::ConvOp>(user);
      auto gather = dyn_cast<graph::GatherOp>(user);
      bool fits = summedDimension(use).has_value();
      if (convolution)
        fits = use.operand->getOperandNumber() == 1 && convolution.getGroups() == 1 &&
               llvm::is_sorted(use.order);
      if (gather)
        fits = use.operand->getOperandNumber() == 0 && use.order.size() == 2 &&
               gather.getAxis() == 0 && llvm::is_sorted(use.order);
      if (!fits || !users.insert(user).second)
        return error() << "a weight of type " << weight.getTensorType() << " that node '"
                       << nodeName(user) << "' ('" << user->getName().stripDialect()
                       << "') uses; adapters are for the matrix of a product, an "
                          "embedding and the kernels of a convolution without groups";
      if (convolution)
        input = 1;
      else if (!summed && !gather)
        summed = summedDimension(use);
    }
    if (rank() == 2 && !isConvolution())
      input = summed.value_or(0); // an embedding takes a row for each of its inputs
    return success();
  }
  bool isConvolution() { return isa<graph::ConvOp>(uses[0].operand->getOwner()); }

  LogicalResult checkRank() {
    int64_t outputs = shape()[1 - input];
    int64_t inputs =
        weight.getTensorType().getNumElements() / std::max<int64_t>(outputs, 1);
    if (rule.rank <= std::min(inputs, outputs))
      return success();
    return error() << "whose smaller side is " << std::min(inputs, outputs)
                   << ", but 'rank' is " << rule.rank;
  }

  /// As PEFT: A uniform within 1 / sqrt(inputs) (kaiming with a = sqrt 5), B zero, so
  /// that the model starts as it was.
  void declare() {
    state.emplace(module);
    Sizes ofA{rule.rank, shape()[input]}, ofB{shape()[1 - input], rule.rank};
    for (int64_t kernel : shape().drop_front(2)) {
      ofA.push_back(kernel);
      ofB.push_back(1);
    }
    auto add = [&](StringRef suffix, const Sizes &sizes) {
      auto parameter = state->declare(("param/" + name + suffix).str(),
                                      weight.getTensorType().clone(sizes), "parameter");
      parameter->setLoc(
          NameLoc::get(StringAttr::get(module.getContext(), name + suffix)));
      return parameter;
    };
    a = add(".lora_A", ofA);
    b = add(".lora_B", ofB);
    InitialDraws draws(seed, modelName(a.getSymName()));
    std::vector<float> values(a.getTensorType().getNumElements());
    double bound = 1 / std::sqrt(static_cast<double>(values.size()) / rule.rank);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(bound * (2 * draws.uniform(i) - 1));
    setInitialValues(a, values);
  }

  void branch(const Use &use, EntryReads &reads) {
    Operation *user = use.operand->getOwner();
    Value first = reads.read(a), second = reads.read(b);
    OpBuilder builder(user);
    builder.setInsertionPointAfter(user);
    graph::GraphBuilder g(user->getLoc(), builder);
    Value change;
    if (auto product = dyn_cast<graph::ContractOp>(user))
      change = ofProduct(g, product, use, first, second, reads);
    else if (auto gather = dyn_cast<graph::GatherOp>(user))
      change = ofRows(g, gather, use, first, second);
    else
      change = ofConvolution(g, cast<graph::ConvOp>(user), first, second, reads);
    Value whole = g.add(user->getResult(0), g.scale(change, scale()));
    user->getResult(0).replaceAllUsesExcept(whole, whole.getDefiningOp());
  }

  Value dropped(graph::GraphBuilder &g, Value x, EntryReads &reads) {
    if (rule.dropout == 0)
      return x;
    uint32_t id = 0x811c9dc5; // FNV-1a of the name: the same in every graph
    for (char c : name)
      id = (id ^ static_cast<unsigned char>(c)) * 0x01000193;
    auto control = [&](const char *symbol) {
      return reads.control(symbol, g.getI64Type());
    };
    return g.make<graph::DropoutOp>(x, control("control/seed"), control("control/update"),
                                    control("control/sample"), APFloat(rule.dropout),
                                    static_cast<int64_t>(id));
  }

  Value contract(graph::GraphBuilder &g, Value lhs, Value rhs, int64_t ofLhs,
                 int64_t ofRhs) {
    return g.make<graph::ContractOp>(lhs, rhs, ArrayRef<int64_t>(), ArrayRef<int64_t>(),
                                     ArrayRef<int64_t>(ofLhs), ArrayRef<int64_t>(ofRhs));
  }

  /// Through the other matrix first where the product sums over the weight's outputs (a
  /// head that is the transposed embedding).
  Value ofProduct(graph::GraphBuilder &g, graph::ContractOp product, const Use &use,
                  Value first, Value second, EntryReads &reads) {
    int64_t summed = 1, kept = 1;
    if (*summedDimension(use) != input) {
      std::swap(first, second);
      summed = kept = 0;
    }
    if (use.operand->getOperandNumber() == 1) {
      Value x = dropped(g, product.getLhs(), reads);
      Value narrow = contract(g, x, first, product.getLhsContract()[0], summed);
      return contract(g, narrow, second, graph::tensorType(narrow).getRank() - 1, kept);
    }
    Value x = dropped(g, product.getRhs(), reads);
    Value narrow = contract(g, first, x, summed, product.getRhsContract()[0]);
    return contract(g, second, narrow, kept, 0);
  }

  Value ofRows(graph::GraphBuilder &g, graph::GatherOp gather, const Use &use,
               Value first, Value second) {
    if (use.order[0] == input) {
      Value columns = g.make<graph::GatherOp>(first, gather.getIndices(), 1);
      return contract(g, columns, second, 0, 1);
    }
    Value rows = g.make<graph::GatherOp>(second, gather.getIndices(), 0);
    return contract(g, rows, first, graph::tensorType(rows).getRank() - 1, 0);
  }

  Value ofConvolution(graph::GraphBuilder &g, graph::ConvOp conv, Value first,
                      Value second, EntryReads &reads) {
    Value narrow = g.make<graph::ConvOp>(dropped(g, conv.getX(), reads), first,
                                         conv.getStrides(), conv.getDilations(),
                                         conv.getPadsBegin(), conv.getPadsEnd(), 1);
    Sizes ones(rank() - 2, 1), zeros(rank() - 2, 0);
    return g.make<graph::ConvOp>(narrow, second, ones, ones, zeros, zeros, 1);
  }

  ModuleOp module;
  graph::ParameterOp weight, a, b;
  const LoraRule &rule;
  uint64_t seed;
  StringRef name;
  std::vector<Use> uses;
  int64_t input = 0; // the weight's dimension of inputs; the other is that of outputs
  std::optional<StateSymbols> state;
};

class ApplyLora : public impl::ApplyLoraBase<ApplyLora> {
public:
  explicit ApplyLora(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (spec.lora.empty())
      return;
    std::vector<Rule> rules;
    for (const LoraRule &rule : spec.lora) {
      auto glob = llvm::GlobPattern::create(rule.match);
      if (!glob) {
        specError() << "pattern '" << rule.match
                    << "' of 'lora' is no glob: " << llvm::toString(glob.takeError());
        return signalPassFailure();
      }
      rules.push_back({&rule, std::move(*glob), 0, 0, 0});
    }
    Builder builder(&getContext());
    SmallVector<Attribute> adapters;
    auto parameters = StateSymbols(getOperation()).parameters();
    for (graph::ParameterOp parameter : parameters)
      if (failed(apply(parameter, rules, adapters)))
        return signalPassFailure();
    if (failed(checkMatched(rules, parameters)))
      return signalPassFailure();
    getOperation()->setAttr("graph.adapters", builder.getArrayAttr(adapters));
    reportRules(rules);
  }

private:
  struct Rule {
    const LoraRule *rule;
    llvm::GlobPattern glob;
    int64_t matched, adapted, elements;
  };

  InFlightDiagnostic specError() { return emitError(UnknownLoc::get(&getContext())); }

  /// Later rules win; vectors that match beside matrices stay as they are.
  LogicalResult apply(graph::ParameterOp parameter, std::vector<Rule> &rules,
                      SmallVectorImpl<Attribute> &adapters) {
    Rule *last = nullptr;
    for (Rule &rule : rules)
      if (rule.glob.match(modelName(parameter.getSymName()))) {
        ++rule.matched;
        last = &rule;
      }
    RankedTensorType type = parameter.getTensorType();
    if (!last || type.getRank() < 2 || !type.getElementType().isF32())
      return success();
    Adapter adapter(getOperation(), parameter, *last->rule, spec.seed);
    if (failed(adapter.build()))
      return failure();
    ++last->adapted;
    last->elements += adapter.elements();
    Builder builder(&getContext());
    adapters.push_back(adapter.describe(builder));
    return success();
  }

  LogicalResult checkMatched(ArrayRef<Rule> rules,
                             ArrayRef<graph::ParameterOp> parameters) {
    for (const Rule &rule : rules) {
      if (rule.matched == 0)
        return specError()
               << "pattern '" << rule.rule->match << "' of 'lora' matches no parameter"
               << (parameters.empty() ? "" : "; the first one is '")
               << (parameters.empty()
                       ? ""
                       : modelName(graph::ParameterOp(parameters.front()).getSymName()))
               << (parameters.empty() ? "" : "'");
      if (rule.adapted == 0)
        return specError() << "pattern '" << rule.rule->match << "' of 'lora' matches "
                           << rule.matched
                           << " parameters, none of which is a matrix of f32 (or all of "
                              "which later rules take)";
    }
    return success();
  }

  void reportRules(ArrayRef<Rule> rules) {
    for (const Rule &rule : rules) {
      std::string text;
      llvm::raw_string_ostream line(text);
      line << "lora: '" << rule.rule->match << "' puts adapters of rank "
           << rule.rule->rank << ", scaled by "
           << llvm::format("%g", rule.rule->alpha / rule.rule->rank) << ", beside "
           << rule.adapted << " weights, " << rule.elements
           << " elements; the weights themselves no longer train";
      if (rule.matched > rule.adapted)
        line << "; " << rule.matched - rule.adapted
             << " parameters that match and are no matrices have none";
      report(getOperation(), text);
    }
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createApplyLora(const TrainingSpec &spec) {
  return std::make_unique<ApplyLora>(spec);
}

} // namespace sluice
