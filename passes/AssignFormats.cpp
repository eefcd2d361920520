// Chooses the stored format of each parameter under `precision.policy`: those that the
// loss depends on least take the fewest bits, so that all fit in the budget and the loss
// is expected to rise least (planning/FormatAssignment). The formats are chosen for
// stored parameters with what completes them to f32: a parameter without a policy keeps
// its master, one in a format of the policy has none.
//
// Importance was measured for each block of a parameter; a parameter is one item, since
// it is stored in one format. Vectors (biases, scales of normalisations) keep their form:
// they are few bytes, and much depends on them.

#include "ir/TrainingSpec.h"
#include "kernels/StoredFormats.h"
#include "passes/AssignedFormats.h"
#include "passes/LaunchCosts.h"
#include "passes/NamePatterns.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"
#include "passes/planning/CostModel.h"
#include "passes/planning/FormatChecker.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_ASSIGNFORMATS
#include "passes/Passes.h.inc"

namespace {

bool matches(const std::string &pattern, StringRef name) {
  auto glob = llvm::GlobPattern::create(pattern);
  if (glob)
    return glob->match(name);
  llvm::consumeError(glob.takeError());
  return pattern == name;
}

/// The products that read a value, through operations that only move elements.
void findProducts(Value value, llvm::DenseSet<Operation *> &seen,
                  SmallVectorImpl<Operation *> &products) {
  for (OpOperand &use : value.getUses()) {
    auto rule = dyn_cast<graph::PrecisionRule>(use.getOwner());
    if (!rule || !seen.insert(rule).second)
      continue;
    if (rule.precision() == graph::PrecisionKind::Moves)
      findProducts(rule->getResult(0), seen, products);
    else if (rule.precision() == graph::PrecisionKind::Product &&
             use.getOperandNumber() < rule.roundedOperands())
      products.push_back(rule);
  }
}

/// A parameter that may take another format.
struct Candidate {
  graph::ParameterOp parameter;
  std::vector<std::string> formats; // by option; the first is the form without a policy
  const ProbedParameter *probed = nullptr;
};

class AssignFormats : public impl::AssignFormatsBase<AssignFormats> {
public:
  explicit AssignFormats(const TrainingSpec &spec)
      : spec(spec), policy(spec.precision.policy) {}

  void runOnOperation() override {
    if (!policy.isOn())
      return;
    candidates.clear(), problem = {}, fixedBytes = wideBytes = 0;
    if (failed(checkProbe()) || failed(checkFormatNames()))
      return signalPassFailure();
    StateSymbols state(getOperation());
    for (graph::ParameterOp parameter : state.parameters())
      add(parameter);
    if (candidates.empty()) {
      getOperation().emitError()
          << "'precision.policy' has no parameter to choose formats for: those of two or "
             "more dimensions that train"
          << (policy.probed ? " and that '" + policy.from + "' has" : "")
          << " are all kept by rules or none";
      return signalPassFailure();
    }
    if (failed(assign()))
      signalPassFailure();
  }

private:
  LogicalResult checkProbe() {
    if (policy.from.empty())
      return success();
    if (!policy.probed)
      return getOperation().emitError()
             << "'precision.policy.from': '" << policy.from << "' has not been read";
    auto hash = getOperation()->getAttrOfType<StringAttr>("graph.model_hash");
    const ProbedModel &probed = *policy.probed;
    if (hash && hash.getValue() != probed.modelHash)
      return getOperation().emitError()
             << "'precision.policy.from': '" << policy.from
             << "' was measured of another model (its hash begins with '"
             << StringRef(probed.modelHash).take_front(12) << "', this one's with '"
             << hash.getValue().take_front(12) << "'); run 'sluice probe' on this model";
    return success();
  }

  LogicalResult checkFormatNames() {
    for (const std::string &name : policy.formats) {
      auto format = storedFormat(name);
      if (!format || *format == StoredFormat::fp32)
        return getOperation().emitError()
               << "'precision.policy.formats' has '" << name
               << "', expected formats narrower than fp32 of " << storedFormatNames();
    }
    return success();
  }

  bool isKept(StringRef name, ArrayRef<Operation *> products) const {
    const std::vector<std::string> &keep = spec.precision.keep;
    return llvm::any_of(keep, [&](const std::string &p) { return matches(p, name); }) ||
           llvm::any_of(products,
                        [&](Operation *op) { return namesAny(keep, op->getLoc()); });
  }

  SmallVector<Operation *> productsOf(graph::ParameterOp parameter) {
    llvm::DenseSet<Operation *> seen;
    SmallVector<Operation *> products;
    getOperation().walk([&](graph::ReadOp read) {
      if (read.getSymbol() == parameter.getSymName())
        findProducts(read.getValue(), seen, products);
    });
    return products;
  }

  /// Of a parameter with what completes it to f32, without a policy.
  int64_t bytesOf(graph::ParameterOp parameter, bool isNarrow) const {
    bool trains = parameter.getTrainable() && llvm::is_contained(spec.entries, "step");
    std::string master = trains ? spec.precision.masterForm() : "none";
    int64_t each = !isNarrow || master == "split" ? 4 : master == "fp32" ? 6 : 2;
    return parameter.getTensorType().getNumElements() * each;
  }

  void add(graph::ParameterOp parameter) {
    RankedTensorType type = parameter.getTensorType();
    if (!type.getElementType().isF32())
      return;
    StringRef name = modelName(parameter.getSymName());
    SmallVector<Operation *> products = productsOf(parameter);
    bool keeps = isKept(name, products);
    bool isNarrow = spec.precision.isNarrow() && !products.empty() && !keeps;
    int64_t bytes = bytesOf(parameter, isNarrow);
    wideBytes += bytes;
    const ProbedParameter *probed = nullptr;
    if (policy.probed) {
      auto found = policy.probed->parameters.find(name.str());
      if (found != policy.probed->parameters.end())
        probed = &found->second;
    }
    bool isOpen = type.getRank() >= 2 && parameter.getTrainable() && !keeps &&
                  (probed || policy.kind != "importance");
    if (!isOpen) {
      fixedBytes += bytes;
      return;
    }
    std::string now = !isNarrow                              ? "fp32"
                      : spec.precision.compute == "amp_bf16" ? "bf16"
                                                             : "fp16";
    Candidate &candidate = candidates.emplace_back();
    candidate.parameter = parameter;
    candidate.probed = probed;
    problem.items.push_back({name.str(), {}});
    addOption(candidate, now, bytes);
    for (const std::string &format : formatsFor(probed))
      addStored(candidate, format);
  }

  std::vector<std::string> formatsFor(const ProbedParameter *probed) const {
    std::vector<std::string> names;
    auto isWanted = [&](const std::string &name) {
      return policy.formats.empty() || llvm::is_contained(policy.formats, name);
    };
    for (int i = 1; i < storedFormatCount; ++i) {
      std::string name(traitsOf(static_cast<StoredFormat>(i)).name);
      if (isWanted(name) && (!probed || probed->increases.count(name)))
        names.push_back(name);
    }
    return names;
  }

  void addStored(Candidate &candidate, const std::string &name) {
    StoredFormat format = *storedFormat(name);
    ArrayRef<int64_t> shape = candidate.parameter.getTensorType().getShape();
    std::span<const int64_t> sizes(shape.data(), shape.size());
    double increase = increaseIn(candidate, name);
    if (isWhole(format, sizes) && std::isfinite(increase))
      addOption(candidate, name, storedBytes(format, sizes));
  }

  /// Without a probe only bytes count.
  static double increaseIn(const Candidate &candidate, const std::string &format) {
    if (!candidate.probed || format == "fp32")
      return 0;
    auto found = candidate.probed->increases.find(format);
    return found == candidate.probed->increases.end() ? 0 : found->second.sum;
  }

  void addOption(Candidate &candidate, const std::string &format, int64_t bytes) {
    // Read by the forward and the backward pass; read and written by the update.
    LaunchCost cost;
    cost.bytes = 4.0 * double(bytes);
    DeviceRates rates = deviceRates(getOperation());
    double increase = increaseIn(candidate, format);
    problem.items.back().options.push_back(
        {std::isfinite(increase) ? increase : 0, bytes, predictLaunch(cost, rates).us});
    candidate.formats.push_back(format);
  }

  int64_t budget() const {
    if (policy.budgetBytes)
      return *policy.budgetBytes;
    return int64_t(policy.budgetShare.value_or(1) * double(wideBytes));
  }

  LogicalResult assign() {
    problem.budgetBytes = budget() - fixedBytes;
    FormatSolution solution =
        policy.kind == "importance" ? assignFormats(problem)
        : policy.kind == "size"
            ? assignInOrder(problem, orderBySize(problem))
            : assignInOrder(problem, orderAtRandom(problem, spec.seed));
    if (!solution.error.empty()) {
      int64_t smallest = solution.smallestBytes + fixedBytes;
      return getOperation().emitError()
             << "'precision.policy.budget' is " << budget()
             << " bytes, but the smallest formats take " << smallest << " ("
             << llvm::formatv("{0:F3}x", double(smallest) / double(wideBytes)).str()
             << "), of which " << fixedBytes
             << " are of parameters that keep their form; raise it, or allow narrower "
                "'formats'";
    }
    if (std::string wrong = checkFormats(problem, solution); !wrong.empty())
      return getOperation().emitError() << "the choice of formats is wrong: " << wrong;
    for (auto [i, candidate] : llvm::enumerate(candidates))
      take(candidate, problem.items[i], solution.choice[i]);
    describe(solution);
    return success();
  }

  void take(Candidate &candidate, const FormatProblem::Item &item, int32_t choice) {
    Builder b(&getContext());
    const FormatOption &option = item.options[choice];
    const std::string &format = candidate.formats[choice];
    if (choice > 0)
      candidate.parameter->setAttr(assignedFormatAttr, b.getStringAttr(format));
    std::string why = choice == 0 ? "keeps its form, " + format : "stored as " + format;
    why += llvm::formatv(" in {0} bytes", option.bytes);
    if (choice > 0)
      why += llvm::formatv(" (without the policy {0})", item.options[0].bytes);
    if (candidate.probed) {
      auto found = candidate.probed->increases.find(format);
      double error = found == candidate.probed->increases.end() ? 0 : found->second.error;
      why += llvm::formatv(", importance {0:e3}, expected increase {1:e3} (standard "
                           "error {2:e1})",
                           candidate.probed->importance, option.increase, error);
    }
    decide(getOperation(), item.name, "policy: " + why);
  }

  void describe(const FormatSolution &solution) {
    int64_t changed = llvm::count_if(solution.choice, [](int32_t c) { return c > 0; });
    double before = 0;
    for (const FormatProblem::Item &item : problem.items)
      before += item.options[0].increase;
    std::string line = "policy: " + origin();
    line += llvm::formatv(": {0} of {1} parameters stored in other formats, all in {2} "
                          "bytes instead of {3} (budget {4})",
                          changed, problem.items.size(), solution.bytes + fixedBytes,
                          wideBytes, budget());
    if (policy.probed)
      line += llvm::formatv("; the loss is expected to rise by {0:e3} (without the "
                            "policy {1:e3})",
                            solution.increase, before);
    if (policy.kind == "importance")
      line += llvm::formatv(", and no choice of as few bytes by less than {0:e3} (gap "
                            "{1:P3})",
                            solution.boundIncrease, solution.gap());
    report(getOperation(), line + (changed > 0 ? "; numbers change" : ""));
    setAttributes(solution);
  }

  std::string origin() const {
    if (policy.kind != "importance")
      return "formats by " + policy.kind;
    std::string text = "formats by importance (" + policy.probed->kind;
    if (!policy.probed->samples.empty())
      text += ", " + policy.probed->samples + " samples";
    return text + ")";
  }

  void setAttributes(const FormatSolution &solution) {
    Builder b(&getContext());
    std::vector<int64_t> walk;
    for (const FormatStep &step : walkFormats(problem))
      walk.push_back(step.bytes + fixedBytes);
    getOperation()->setAttr(
        policyAttr,
        b.getDictionaryAttr(
            {b.getNamedAttr("wide_bytes", b.getI64IntegerAttr(wideBytes)),
             b.getNamedAttr("smallest_bytes",
                            b.getI64IntegerAttr(solution.smallestBytes + fixedBytes)),
             b.getNamedAttr("bytes", b.getI64IntegerAttr(solution.bytes + fixedBytes)),
             b.getNamedAttr("increase", b.getF64FloatAttr(solution.increase)),
             b.getNamedAttr("bound", b.getF64FloatAttr(solution.boundIncrease)),
             b.getNamedAttr("walk", b.getDenseI64ArrayAttr(walk))}));
  }

  const TrainingSpec &spec;
  const PolicySpec &policy;
  std::vector<Candidate> candidates;
  FormatProblem problem;                 // an item for each candidate
  int64_t fixedBytes = 0, wideBytes = 0; // of those that keep their form; of all
};

} // namespace

std::unique_ptr<Pass> createAssignFormats(const TrainingSpec &spec) {
  return std::make_unique<AssignFormats>(spec);
}

} // namespace sluice
