// Draws initial values where the spec asks for others than the model's. First of all
// passes: whatever the import or a later stage says about parameters holds for any
// values.

#include "ir/TrainingSpec.h"
#include "passes/InitFormulas.h"
#include "passes/InitialDraws.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/GlobPattern.h"

#include <map>

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_INITPARAMETERS
#include "passes/Passes.h.inc"

namespace {

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
    } else if (hasFans(*last) && type.getRank() < 2) {
      ++withoutFans;
      return success();
    } else if (!type.getElementType().isF32()) {
      return specError() << "'init' of '" << name << "', which has type " << type
                         << ", is not yet supported; expected f32";
    } else {
      setInitialValues(parameter, drawnValues(parameter, *last, spec.seed));
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
