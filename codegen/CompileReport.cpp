#include "codegen/CompileReport.h"

#include "codegen/PeakReport.h"
#include "codegen/StateFile.h"
#include "codegen/Variants.h"
#include "ir/plan/Plan.h"
#include "passes/GradientTiles.h"
#include "passes/PlanLaunches.h"
#include "passes/ReplayShare.h"
#include "passes/UpdateGroups.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

StringRef stepCategory(StringRef category) {
  return category == "io" ? "activations" : category;
}

int64_t roundUp(int64_t bytes) { return llvm::alignTo(bytes, lineBytes); }

/// The program that needs most of the step reservation.
plan::ProgramOp largestProgram(ModuleOp module) {
  plan::ProgramOp largest;
  for (auto program : module.getOps<plan::ProgramOp>())
    if (!largest || program.getStepBytes() > largest.getStepBytes())
      largest = program;
  return largest;
}

/// `otherBytes`: constants of other variants in the state.
void reportMemory(ModuleOp module, int64_t otherBytes, CompileReport &report) {
  for (StringRef category : {"parameters", "gradients", "optimizer", "activations",
                             "workspace", "comm", "continual", "host"})
    report.arena[category.str()] = 0;
  for (auto state : module.getOps<plan::StateOp>()) {
    int64_t bytes = roundUp(state.getSize());
    if (state.isOnHost()) {
      report.hostStateBytes += bytes;
      continue;
    }
    report.stateBytes += bytes;
    report.arena[stateCategory(state.getRole()).str()] += bytes;
    report.state[state.getRole().str()] += bytes;
  }
  report.stateBytes += otherBytes;
  report.arena["parameters"] += otherBytes;
  int64_t used = report.stateBytes;
  if (plan::ProgramOp program = largestProgram(module)) {
    report.stepBytes = program.getStepBytes();
    if (DictionaryAttr peak = program.getPeakAttr())
      for (NamedAttribute entry : peak) {
        int64_t bytes = cast<IntegerAttr>(entry.getValue()).getInt();
        report.arena[stepCategory(entry.getName()).str()] += bytes;
        used += bytes;
      }
  }
  for (auto program : module.getOps<plan::ProgramOp>())
    report.hostStepBytes =
        std::max<int64_t>(report.hostStepBytes, program.getHostBytes());
  // Beside the device's bytes, not one of them.
  report.arena["host"] = report.hostStateBytes + report.hostStepBytes;
  if (auto replay = module->getAttrOfType<DictionaryAttr>(replayAttr))
    report.arena["host"] += replay.getAs<IntegerAttr>("capacity_bytes").getInt();
  report.arenaBytes = report.stateBytes + report.stepBytes;
  report.arena["unused"] = report.arenaBytes - used;
  report.unconstrainedArenaBytes = report.arenaBytes;
}

void addNote(ModuleOp module, StringRef topic, const std::string &text) {
  SmallVector<Attribute> lines;
  if (auto known = module->getAttrOfType<ArrayAttr>("graph.report"))
    lines.append(known.begin(), known.end());
  lines.push_back(StringAttr::get(module.getContext(), topic + ": " + text));
  module->setAttr("graph.report", ArrayAttr::get(module.getContext(), lines));
}

void reportTime(ModuleOp module, CompileReport &report) {
  int64_t accumulate = 1, ranks = 1;
  double launches = 0;
  if (auto attr = module->getAttrOfType<IntegerAttr>("graph.accumulate"))
    accumulate = attr.getInt();
  if (auto attr = module->getAttrOfType<IntegerAttr>("graph.as_ranks"))
    ranks = attr.getInt();
  bool steps =
      llvm::any_of(module.getOps<plan::ProgramOp>(),
                   [](plan::ProgramOp program) { return program.getEntry() == "step"; });
  for (auto program : module.getOps<plan::ProgramOp>()) {
    StringRef entry = program.getEntry();
    // Beside @step, @update is for ranks that have nothing to step on.
    int64_t runs = entry == "step"         ? 1
                   : isUpdateEntry(entry)  ? !steps
                   : entry == "micro"      ? accumulate
                   : entry == "close_rank" ? ranks - 1
                                           : 0;
    double share = updateRuns(module, entry); // of the steps, where groups interleave
    report.stepUs += share * runs * program.getPredictedUs().convertToDouble();
    launches += share * runs * static_cast<double>(launchesOf(program).size());
  }
  report.launches += static_cast<int64_t>(std::ceil(launches));
  report.stepUsBound = report.stepUs; // unless memory was traded, the only plan there is
}

/// What the update waits for copies.
double updateWaitUs(ModuleOp module) {
  double us = 0;
  for (auto program : module.getOps<plan::ProgramOp>())
    if (isUpdateEntry(program.getEntry())) {
      double share = updateRuns(module, program.getEntry());
      us += share * program.getPredictedUs().convertToDouble();
      for (plan::LaunchOp launch : launchesOf(program))
        us -= share * launch.getPredictedUs().convertToDouble();
    }
  return std::max(0.0, us);
}

/// What the search for the budget found beside the plan itself.
void reportChoice(ModuleOp module, const BudgetChoice &choice, CompileReport &report) {
  report.unconstrainedArenaBytes = choice.unconstrainedBytes;
  // What is kept and recomputed stands with the values of the program (TensorFacts.h).
  for (auto &line : choice.decisions)
    if (StringRef(line.second).starts_with("offloaded"))
      report.decisions.push_back(line);
  if (!choice.note.empty())
    addNote(module, "recompute", choice.note);
  for (const std::string &note : choice.notes) {
    auto [topic, text] = StringRef(note).split(": ");
    addNote(module, topic, text.str());
  }
  int64_t runs = 1;
  double trainUs = 0;
  if (auto attr = module->getAttrOfType<IntegerAttr>("graph.accumulate"))
    runs = attr.getInt();
  for (auto program : module.getOps<plan::ProgramOp>())
    if (program.getEntry() == "step" || program.getEntry() == "micro")
      trainUs = program.getPredictedUs().convertToDouble();
  // What runs once costs as much in every plan.
  double boundUs = choice.unconstrainedUs + choice.leastAgainUs;
  for (auto program : module.getOps<plan::ProgramOp>())
    if (program.getEntry() == "step" || program.getEntry() == "micro")
      program->setAttr(boundUsAttr, Builder(module).getF64FloatAttr(boundUs));
  report.stepUsBound =
      report.stepUs - runs * std::max(0.0, trainUs - boundUs) - updateWaitUs(module);
  report.gap = report.stepUs / report.stepUsBound - 1;
}

/// "gradients and moments for 4 of 12 parameter tensors".
std::string trainingLine(ModuleOp module) {
  int64_t parameters = 0, trainable = 0, moments = 0, momentBytes = 0;
  llvm::StringSet<> gradients;
  int64_t gradientBytes = 0;
  for (auto state : module.getOps<plan::StateOp>()) {
    parameters += state.getRole() == "parameter";
    trainable += state.getTrainable();
    if (state.getRole() == "moment")
      ++moments, momentBytes += state.getSize();
    auto [folder, name] = state.getSymName().split('/');
    bool isSum = state.getRole() == "accumulator" || state.getRole() == "pending";
    if (isSum && name != "count" && folder != "window" && folder != "old")
      gradients.insert(state.getSymName()), gradientBytes += state.getSize();
  }
  for (auto program : module.getOps<plan::ProgramOp>())
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
      if (program.getEntry() == "step" && buffer.getCategory() == "gradients" &&
          gradients.insert(buffer.getLabel()).second)
        gradientBytes += buffer.getSize();
  return llvm::formatv("gradients and moments for {0} of {1} parameter tensors only: {2} "
                       "moment tensors of {3} bytes, {4} gradient buffers of {5} bytes",
                       trainable, parameters, moments, momentBytes, gradients.size(),
                       gradientBytes)
      .str();
}

/// Of groups that interleave or are deferred; empty without.
std::string pendingLine(ModuleOp module) {
  int64_t gradients = 0, weights = 0;
  for (auto state : module.getOps<plan::StateOp>())
    if (state.getRole() == "pending") {
      bool isOld = state.getSymName().starts_with("old/");
      (isOld ? weights : gradients) += int64_t(state.getSize());
    }
  if (gradients + weights == 0)
    return "";
  return llvm::formatv("{0} bytes of gradients that wait and {1} bytes of old weights, "
                       "part of the state and of checkpoints",
                       gradients, weights)
      .str();
}

/// "26 are applied tile by tile ...": in the training entries together. Says so of each
/// gradient too.
std::string updatesLine(ModuleOp module, CompileReport &report) {
  int64_t count = 0, total = 0;
  for (auto program : module.getOps<plan::ProgramOp>())
    for (plan::LaunchOp launch : launchesOf(program))
      if (auto gradient = launch->getAttrOfType<DictionaryAttr>(fusedGradientAttr)) {
        int64_t bytes = gradient.getAs<IntegerAttr>("bytes").getInt();
        ++count, total += bytes;
        report.decisions.push_back(
            {gradient.getAs<StringAttr>("name").str(),
             program.getEntry().str() + ": gradient, " + std::to_string(bytes) +
                 " bytes: never stored, the update is applied tile by tile as it is "
                 "computed"});
      }
  if (count == 0)
    return "";
  return llvm::formatv("{0} are applied tile by tile as their gradient is computed: {1} "
                       "bytes of gradients are never stored",
                       count, total)
      .str();
}

void addDecisions(ModuleOp module, CompileReport &report) {
  for (auto state : module.getOps<plan::StateOp>()) {
    if (state.getRole() != "parameter")
      continue;
    std::string why = state.getTrainable() ? "trains, in group '" +
                                                 state.getGroup().value_or("").str() + "'"
                                           : "does not train: no gradient, no moments";
    std::optional<DType> type = storedType(state.getTensorType().getElementType());
    why += ", " + (type ? std::string(dtypeName(*type)) : "") + ", " +
           std::to_string(state.getSize()) + " bytes at offset " +
           std::to_string(state.getOffset()) + " of the state";
    report.decisions.push_back({state.getSymName().split('/').second.str(), why});
  }
  if (auto pairs = module->getAttrOfType<ArrayAttr>("graph.decisions"))
    for (auto pair : pairs.getAsRange<ArrayAttr>())
      report.decisions.push_back(
          {cast<StringAttr>(pair[0]).str(), cast<StringAttr>(pair[1]).str()});
}

} // namespace

void reportPlan(ModuleOp module, const BudgetChoice *choice, int64_t otherBytes,
                CompileReport &report) {
  reportMemory(module, otherBytes, report);
  reportTime(module, report);
  if (choice)
    reportChoice(module, *choice, report);
  report.kernels = llvm::range_size(module.getOps<plan::KernelOp>());
  bool trains =
      llvm::any_of(module.getOps<plan::ProgramOp>(), [](plan::ProgramOp program) {
        return program.getEntry() == "step" || isUpdateEntry(program.getEntry());
      });
  if (trains)
    addNote(module, "memory", trainingLine(module));
  if (std::string line = pendingLine(module); !line.empty())
    addNote(module, "pending", line);
  std::string categories;
  for (auto &[category, bytes] : report.arena)
    if (bytes > 0 && category != "host")
      categories +=
          (categories.empty() ? "" : ", ") + category + " " + std::to_string(bytes);
  addNote(module, "arena",
          std::to_string(report.arenaBytes) + " bytes at the peak: " + categories);
  report.peak = peakOf(module).text();
  addNote(module, "peak", report.peak);
  addDecisions(module, report);
  if (std::string line = updatesLine(module, report); !line.empty())
    addNote(module, "updates", line);
  if (auto lines = module->getAttrOfType<ArrayAttr>("graph.report"))
    for (auto line : lines.getAsRange<StringAttr>()) {
      StringRef text = line;
      bool warns = text.consume_front("warning: ");
      (warns ? report.warnings : report.notes).push_back(text.str());
    }
}

void describePlan(ModuleOp module, CompileReport &report) {
  reportMemory(module, 0, report);
  reportTime(module, report);
}

} // namespace sluice
