// Draws initial values where the spec asks for others than the model's. First of all
// passes: whatever the import or a later stage says about parameters holds for any
// values.

#include "ir/TrainingSpec.h"
#include "passes/InitialDraws.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/GlobPattern.h"

#include <cmath>
#include <map>

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_INITPARAMETERS
#include "passes/Passes.h.inc"

namespace {

/// How many numbers flow into and out of a unit: what the scale of its weights is chosen
/// by.
struct Fans {
  int64_t in = 1, out = 1;
};

/// PyTorch's rule: [out, in, kernel...].
Fans fansOfShape(ArrayRef<int64_t> shape) {
  Fans fans{shape[1], shape[0]};
  for (int64_t size : shape.drop_front(2))
    fans.in *= size, fans.out *= size;
  return fans;
}

/// A product says itself which dimensions it sums over; `order` are the parameter's
/// dimensions as the product sees them.
std::optional<Fans> fansOfProduct(OpOperand &use, ArrayRef<int64_t> shape,
                                  ArrayRef<int64_t> order) {
  auto product = dyn_cast<graph::ContractOp>(use.getOwner());
  if (!product)
    return std::nullopt;
  bool isLhs = use.getOperandNumber() == 0;
  ArrayRef<int64_t> summed = isLhs ? product.getLhsContract() : product.getRhsContract();
  ArrayRef<int64_t> batch = isLhs ? product.getLhsBatch() : product.getRhsBatch();
  Fans fans;
  for (auto [position, dimension] : llvm::enumerate(order)) {
    if (llvm::is_contained(summed, position))
      fans.in *= shape[dimension];
    else if (!llvm::is_contained(batch, position))
      fans.out *= shape[dimension];
  }
  return fans;
}

Fans fansOf(graph::ParameterOp parameter) {
  ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
  auto straight = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  std::optional<Fans> found;
  auto visit = [&](Value value, ArrayRef<int64_t> order) {
    for (OpOperand &use : value.getUses())
      if (!found)
        found = fansOfProduct(use, shape, order);
  };
  parameter->getParentOfType<ModuleOp>().walk([&](graph::ReadOp read) {
    if (read.getSymbol() != parameter.getSymName())
      return;
    visit(read.getValue(), straight);
    for (Operation *user : read.getValue().getUsers())
      if (auto transpose = dyn_cast<graph::TransposeOp>(user))
        visit(transpose.getResult(), transpose.getPermutation());
  });
  return found ? *found : fansOfShape(shape);
}

/// Values by PyTorch's formulas (torch.nn.init, gain sqrt 2 for kaiming and 1 for
/// xavier).
std::vector<float> drawn(graph::ParameterOp parameter, const InitRule &rule,
                         uint64_t seed) {
  InitialDraws draws(seed, modelName(parameter.getSymName()));
  bool isNormal = rule.from == "normal" || StringRef(rule.from).ends_with("_normal");
  double scale = rule.std;
  if (rule.from != "normal") {
    Fans fans = fansOf(parameter);
    bool isKaiming = StringRef(rule.from).starts_with("kaiming");
    double count = isKaiming ? fans.in : 0.5 * static_cast<double>(fans.in + fans.out);
    double deviation = std::sqrt((isKaiming ? 2.0 : 1.0) / std::max(count, 1.0));
    scale = isNormal ? deviation : std::sqrt(3.0) * deviation;
  }
  std::vector<float> values(parameter.getTensorType().getNumElements());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(
        scale * (isNormal ? draws.normal(i) : 2 * draws.uniform(i) - 1));
  return values;
}

class InitParameters : public impl::InitParametersBase<InitParameters> {
public:
  explicit InitParameters(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    std::vector<Rule> rules;
    for (const InitRule &rule : spec.init) {
      auto glob = llvm::GlobPattern::create(rule.match);
      if (!glob) {
        specError() << "pattern '" << rule.match
                    << "' of 'init' is no glob: " << llvm::toString(glob.takeError());
        return signalPassFailure();
      }
      rules.push_back({&rule, std::move(*glob)});
    }
    auto parameters = StateSymbols(getOperation()).parameters();
    for (graph::ParameterOp parameter : parameters)
      if (failed(apply(parameter, rules)))
        return signalPassFailure();
    for (const Rule &rule : rules)
      if (!rule.matched && !parameters.empty()) {
        specError() << "pattern '" << rule.rule->match
                    << "' of 'init' matches no parameter; the first one is '"
                    << modelName(parameters.front().getSymName()) << "'";
        return signalPassFailure();
      }
    reportCounts();
  }

private:
  struct Rule {
    const InitRule *rule;
    llvm::GlobPattern glob;
    bool matched = false;
  };

  InFlightDiagnostic specError() { return emitError(UnknownLoc::get(&getContext())); }

  LogicalResult apply(graph::ParameterOp parameter, std::vector<Rule> &rules) {
    const InitRule *last = nullptr;
    StringRef name = modelName(parameter.getSymName());
    for (Rule &rule : rules)
      if (rule.glob.match(name)) {
        rule.matched = true;
        last = rule.rule;
      }
    if (!last || last->from == "model")
      return success();
    RankedTensorType type = parameter.getTensorType();
    if (!isa<FloatType>(type.getElementType()))
      return success();
    if (last->from == "zeros" || last->from == "ones") {
      parameter.removeInitAttr();
      parameter.setFill(APFloat(last->from == "ones" ? 1.0 : 0.0));
    } else if (last->from != "normal" && type.getRank() < 2) {
      ++withoutFans;
      return success();
    } else if (!type.getElementType().isF32()) {
      return specError() << "'init' of '" << name << "', which has type " << type
                         << ", is not yet supported; expected f32";
    } else {
      setInitialValues(parameter, drawn(parameter, *last, spec.seed));
    }
    ++counts[last->from];
    return success();
  }

  void reportCounts() {
    for (const auto &[from, count] : counts)
      report(getOperation(), "init: " + std::to_string(count) + " parameters by " + from +
                                 ", seed " + std::to_string(spec.seed));
    if (withoutFans > 0)
      report(getOperation(), "init: " + std::to_string(withoutFans) +
                                 " parameters below rank 2 keep the model's values: they "
                                 "have no fan to be scaled by");
  }

  const TrainingSpec &spec;
  std::map<std::string, int64_t> counts;
  int64_t withoutFans = 0;
};

} // namespace

std::unique_ptr<Pass> createInitParameters(const TrainingSpec &spec) {
  return std::make_unique<InitParameters>(spec);
}

} // namespace sluice
