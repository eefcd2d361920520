#include "codegen/PolicySearch.h"

#include "codegen/ProbeReader.h"
#include "passes/AssignedFormats.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir;

namespace sluice {
namespace {

class PolicySearch {
public:
  PolicySearch(ArrayRef<CompileBucket> buckets, CompileOptions &options,
               CompileFunction compile)
      : buckets(buckets), options(options), compile(compile) {}

  Status run(std::string &note) {
    Trial first;
    if (Status status = plan(std::nullopt, /*bounded=*/false, first); !status.ok())
      return status;
    targetUs = first.stepUs / options.spec.precision.policy.speed;
    budgets = budgetsFrom(first.walk, first.bytes);
    size_t chosen = 0;
    if (Status status = choose(chosen); !status.ok())
      return status;
    PolicySpec &policy = options.spec.precision.policy;
    policy.budgetShare.reset();
    policy.budgetBytes = budgets[chosen];
    note = describe(first, chosen);
    return Status::success();
  }

private:
  /// A plan, as far as it counts.
  struct Trial {
    bool fits = false;
    double stepUs = 0;
    int64_t bytes = 0;
    std::vector<int64_t> walk;
  };

  /// `policyBytes`: of parameters; none: what the spec says. `bounded`: by the memory
  /// budget.
  Status plan(std::optional<int64_t> policyBytes, bool bounded, Trial &trial) {
    std::vector<OwningOpRef<ModuleOp>> clones;
    std::vector<CompileBucket> copies;
    for (const CompileBucket &bucket : buckets) {
      clones.push_back(ModuleOp(bucket.module).clone());
      copies.push_back({bucket.name, *clones.back()});
    }
    CompileOptions tried = options;
    tried.stopAfter = CompileStage::Plan;
    PolicySpec &policy = tried.spec.precision.policy;
    if (policyBytes)
      policy.budgetShare.reset(), policy.budgetBytes = policyBytes;
    if (!bounded)
      tried.spec.budgetBytes.reset(), tried.spec.ladder.clear();
    CompileReport report;
    Status status = compile(copies, tried, report);
    trial.fits = status.ok();
    trial.stepUs = report.stepUs;
    if (auto decided = copies.front().module->getAttrOfType<DictionaryAttr>(policyAttr)) {
      trial.bytes = decided.getAs<IntegerAttr>("bytes").getInt();
      ArrayRef<int64_t> walk = decided.getAs<DenseI64ArrayAttr>("walk").asArrayRef();
      trial.walk.assign(walk.begin(), walk.end());
    }
    return bounded && status.code == StatusCode::doesNotFit ? Status::success() : status;
  }

  /// Not more than `most`, which is the first; evenly spaced in the walk.
  static std::vector<int64_t> budgetsFrom(ArrayRef<int64_t> walk, int64_t most) {
    constexpr size_t points = 32;
    std::vector<int64_t> below, list = {most};
    for (int64_t bytes : walk)
      if (bytes < most)
        below.push_back(bytes);
    size_t taken = std::min(points, below.size());
    for (size_t i = 1; i <= taken; ++i)
      list.push_back(below[i * below.size() / taken - 1]);
    return list;
  }

  Status tryBudget(size_t index) {
    return tried.count(index) ? Status::success()
                              : plan(budgets[index], /*bounded=*/true, tried[index]);
  }
  bool isGood(size_t index) const {
    const Trial &trial = tried.at(index);
    return trial.fits && trial.stepUs <= targetUs;
  }

  /// The first that is good: those behind it are too.
  Status choose(size_t &chosen) {
    size_t low = 0, high = budgets.size() - 1;
    for (size_t index : {low, high}) {
      if (Status status = tryBudget(index); !status.ok())
        return status;
      if (index == 0 && isGood(index))
        return Status::success();
    }
    if (!isGood(high)) {
      chosen = fastest();
      return Status::success();
    }
    while (low + 1 < high) {
      size_t middle = (low + high) / 2;
      if (Status status = tryBudget(middle); !status.ok())
        return status;
      (isGood(middle) ? high : low) = middle;
    }
    chosen = high;
    return Status::success();
  }

  /// Of those that fit; the smallest parameters where none does.
  size_t fastest() const {
    size_t best = budgets.size() - 1;
    for (auto &[index, trial] : tried)
      if (trial.fits && (!tried.at(best).fits || trial.stepUs < tried.at(best).stepUs))
        best = index;
    return best;
  }

  std::string describe(const Trial &first, size_t chosen) const {
    auto speedOf = [&](const Trial &trial) {
      return trial.fits ? llvm::formatv("a predicted speed of {0:F3} of that without a "
                                        "memory budget",
                                        first.stepUs / trial.stepUs)
                              .str()
                        : std::string("no plan that fits");
    };
    const Trial &start = tried.at(0), &end = tried.at(chosen);
    std::string text =
        llvm::formatv("policy: under the memory budget parameters of {0} "
                      "bytes leave {1}",
                      start.bytes ? start.bytes : budgets[0], speedOf(start));
    if (chosen > 0)
      text += llvm::formatv("; of {0} bytes, {1}: fewer bits in place of more recompute, "
                            "and numbers change",
                            end.bytes ? end.bytes : budgets[chosen], speedOf(end));
    return text + llvm::formatv(" (wanted {0:F2}, {1} budgets of parameters planned)",
                                options.spec.precision.policy.speed, tried.size())
                      .str();
  }

  ArrayRef<CompileBucket> buckets;
  CompileOptions &options;
  CompileFunction compile;
  double targetUs = 0;
  std::vector<int64_t> budgets; // falling
  std::map<size_t, Trial> tried;
};

} // namespace

Status preparePolicy(TrainingSpec &spec) {
  PolicySpec &policy = spec.precision.policy;
  if (!policy.isOn())
    return Status::success();
  if (!policy.budgetBytes && !policy.budgetShare && !spec.budgetBytes)
    return Status::refused("'precision.policy' has no 'budget' and there is no "
                           "'memory.budget', so that all parameters keep their form; "
                           "give one of them, such as budget: 0.6x");
  return readProbed(policy);
}

Status searchPolicy(ArrayRef<CompileBucket> buckets, CompileOptions &options,
                    CompileFunction compile, std::string &note) {
  if (!options.spec.precision.policy.isOn() || !options.spec.budgetBytes)
    return Status::success();
  return PolicySearch(buckets, options, compile).run(note);
}

} // namespace sluice
