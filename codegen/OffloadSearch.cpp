#include "codegen/OffloadSearch.h"

#include "codegen/OffloadFrontier.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace sluice {
namespace {

class OffloadSearch {
public:
  OffloadSearch(ModuleOp module, const CompileOptions &options, const BudgetChoice *other,
                bool isSameStep, BudgetChoice &choice)
      : module(module), options(options), plans(module, options, other, isSameStep),
        choice(choice) {}

  Status run() {
    const TrainingSpec &spec = options.spec;
    if (Status status = plans.start(spec.budgetBytes.has_value()); !status.ok())
      return status;
    choice.unconstrainedBytes = plans.unconstrainedBytes;
    choice.unconstrainedUs = plans.unconstrainedUs;
    bool taken = false;
    if (Status status = takeFree(taken); !status.ok() || taken)
      return status;
    bool recomputes =
        spec.budgetBytes && !spec.hasFixedRecompute() && spec.recompute != "none";
    if (recomputes && trainingEntry(module)) {
      if (Status status = plans.addRecompute(); !status.ok())
        return status;
    }
    if (!spec.budgetBytes)
      return take(plans.entries.front());
    std::optional<OffloadEntry> entry;
    if (Status status = plans.findFastest(targetBytes(), entry); !status.ok())
      return status;
    if (!entry)
      if (Status status = plans.findSmallest(entry); !status.ok())
        return status;
    return take(*entry);
  }

private:
  /// Where copies hide behind launches altogether nothing can be faster: the first such
  /// entry that fits.
  Status takeFree(bool &taken) {
    if (!options.spec.budgetBytes)
      return Status::success();
    for (const OffloadEntry &entry : plans.entries) {
      if (entry.deviceBytes > targetBytes() || entry.timeUs > plans.plainUs)
        continue;
      int64_t bytes = 0;
      if (Status status = placed(entry, bytes); !status.ok())
        return status;
      if (bytes <= targetBytes()) {
        taken = true;
        return take(entry);
      }
    }
    return Status::success();
  }

  /// Offload begins at a share of the budget: what fits below it is as fast as can be.
  int64_t targetBytes() const {
    return static_cast<int64_t>(double(*options.spec.budgetBytes) *
                                options.spec.offloadThreshold);
  }

  Status placed(const OffloadEntry &entry, int64_t &bytes) {
    OwningOpRef<ModuleOp> planned;
    Status status = plans.place(entry, targetBytes(), planned);
    bytes = deviceBytesOf(*planned);
    return status;
  }

  Status take(const OffloadEntry &entry) {
    choice.offload = entry.names;
    choice.hostBytes = entry.hostBytes;
    choice.member = entry.member;
    choice.decisions = entry.decisions;
    if (plans.problem)
      if (Status status = prove(); !status.ok())
        return status;
    std::string moved;
    size_t buffers = 0;
    for (auto &[name, list] : entry.names.buffers)
      buffers += list.size();
    if (!entry.names.empty())
      choice.notes.push_back(
          llvm::formatv("offload: {0} tensors of the state and {1} values lie in the "
                        "host's memory, {2} bytes of it; {3:F1} us an update",
                        entry.names.states.size(), buffers, entry.hostBytes, entry.timeUs)
              .str());
    if (entry.member < 0)
      return Status::success();
    RecomputeSolution solution = plans.frontier->plan(entry.member);
    if (std::string wrong = checkSchedule(plans.problem->problem, solution);
        !wrong.empty())
      return Status::failed("the recompute plan is wrong: " + wrong);
    addRecomputeDecisions(solution);
    choice.note =
        llvm::formatv("{0} runs more than the {1} of a step that keeps "
                      "everything ({2})",
                      solution.schedule.size() - plans.problem->problem.ops.size(),
                      plans.problem->problem.ops.size(), solution.method)
            .str();
    StepProblem(trainingEntry(module), options.spec.keep).apply(solution);
    return Status::success();
  }

  /// Of what is kept in the sense of the recompute plan, some is in the host's memory.
  void addRecomputeDecisions(const RecomputeSolution &solution) {
    for (auto &line : plans.problem->decisions(solution)) {
      bool moved = llvm::any_of(choice.decisions, [&](auto &other) {
        return other.first == line.first &&
               StringRef(other.second).starts_with("offloaded");
      });
      if (!moved || !StringRef(line.second).starts_with("kept"))
        choice.decisions.push_back(line);
    }
  }

  /// No plan under the budget is predicted faster, whatever it runs again or moves. The
  /// bytes moved that make the two ways meet are found by bisection.
  Status prove() {
    int64_t budget = *options.spec.budgetBytes - plans.residentStateBytes;
    int64_t low = 0, high = plans.movableBytes + plans.residentStateBytes;
    OffloadCertificate best;
    for (int round = 0; round < 16 && low <= high; ++round) {
      int64_t moved = low + (high - low) / 2;
      OffloadCertificate proof = certificate(budget, moved);
      if (round == 0 || leastExtraUs(proof) > leastExtraUs(best))
        best = proof;
      bool linkIsLess = proof.compute.infeasible || proof.linkUs < proof.compute.boundUs;
      if (linkIsLess)
        low = moved + 1;
      else
        high = moved - 1;
    }
    if (std::string wrong =
            checkOffloadCertificate(plans.problem->problem, plans.link, best);
        !wrong.empty())
      return Status::failed("the certificate of the offload plan is wrong: " + wrong);
    choice.leastAgainUs = leastExtraUs(best);
    return Status::success();
  }

  /// What any plan takes more than the one that neither runs again nor moves anything.
  double leastExtraUs(const OffloadCertificate &proof) const {
    double linkUs = proof.linkUs - choice.unconstrainedUs;
    double again = proof.compute.infeasible ? linkUs : proof.compute.boundUs - onceUs();
    return std::max(0.0, std::min(linkUs, again));
  }

  double onceUs() const {
    double us = 0;
    for (const RecomputeProblem::Op &op : plans.problem->problem.ops)
      us += op.costUs;
    return us;
  }

  OffloadCertificate certificate(int64_t budget, int64_t moved) {
    OffloadCertificate proof;
    proof.budgetBytes = budget;
    proof.movedBytes = moved;
    proof.readOnlyBytes = plans.readOnlyBytes;
    proof.linkUs = leastLinkUs(moved, plans.readOnlyBytes, plans.link);
    proof.compute = plans.frontier->certificate(budget + moved);
    proof.boundUs = proof.compute.infeasible
                        ? proof.linkUs
                        : std::min(proof.linkUs, proof.compute.boundUs);
    proof.boundUs = std::max(proof.boundUs, onceUs());
    return proof;
  }

  ModuleOp module;
  const CompileOptions &options;
  OffloadFrontier plans;
  BudgetChoice &choice;
};

} // namespace

Status tradeMemoryAndLink(ModuleOp module, const CompileOptions &options,
                          const BudgetChoice *other, bool isSameStep,
                          BudgetChoice &choice) {
  return OffloadSearch(module, options, other, isSameStep, choice).run();
}

} // namespace sluice
