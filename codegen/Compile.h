#pragma once
// The compiler from an imported module to the plan file.

#include "ir/DeviceProfile.h"
#include "ir/TrainingSpec.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// Where `compileModule` stops; the module then holds the IR of that stage.
enum class CompileStage { Model, Train, Regions, Decide, Plan, Code };

/// "model", "train", ...; nothing for other names.
std::optional<CompileStage> compileStageNamed(llvm::StringRef name);

struct CompileOptions {
  TrainingSpec spec;
  DeviceProfile device; // whose rates predict times
  std::string outPath;  // OUT.plan; needed for the last stage only
  CompileStage stopAfter = CompileStage::Code;
  bool fuse = true; // false: one operation a region, for tests
  std::vector<std::string> levels = {"x86-64-v3", "x86-64-v4"};
  std::map<std::string, std::string> tensorNodes; // of the import: tensor -> node
  int64_t redZoneBytes = 0; // around every buffer, for tests of law 1
};

/// A variant of the plan: a bucket of shapes on a rung of the memory ladder.
struct VariantReport {
  std::string name;
  uint32_t bucket = 0, rung = 0;
  double memoryFraction = 1; // of the rung
  std::optional<int64_t> budgetBytes;
  int64_t batch = 0, arenaBytes = 0, stepBytes = 0;
  int64_t hostBytes = 0;                       // beside the arena, in the host's memory
  double stepUs = 0, stepUsBound = 0, gap = 0; // predicted
  std::vector<std::pair<std::string, int64_t>> programs; // entry, step bytes
};

/// The keys of `sluice compile --json`.
struct CompileReport {
  int64_t arenaBytes = 0, stateBytes = 0, stepBytes = 0; // of the device
  int64_t hostStateBytes = 0, hostStepBytes = 0;         // the host's reservations
  /// Bytes at the peak instant: parameters, gradients, optimizer, activations, workspace,
  /// comm, continual; and `unused`, what the placement leaves between them. `host` is
  /// what lies in the host's memory, and no part of the arena.
  std::map<std::string, int64_t> arena;
  /// Bytes of the state on the device by role: parameter, master, moment, buffer, ...
  std::map<std::string, int64_t> state;
  std::string peak; // when it is and what is live then
  int64_t unconstrainedArenaBytes = 0;
  std::optional<int64_t> budgetBytes;
  double stepUs = 0, stepUsBound = 0; // predicted
  double gap = 0;
  int64_t kernels = 0;  // distinct ones
  int64_t launches = 0; // of a step
  double compileSeconds = 0;
  std::vector<std::string> warnings, notes;                   // notes: "topic: text"
  std::vector<std::pair<std::string, std::string>> decisions; // subject, why
  std::vector<VariantReport> variants;
};

/// The model imported with one element of the spec's `shapes`.
struct CompileBucket {
  std::string name; // "T=64"
  mlir::ModuleOp module;
};

/// As compileModule, for every bucket: one plan, one state. The figures of the report are
/// those of the variant that needs most memory; where a budget is not met, it has the
/// variants only. On failure, and at stages before the last, each module holds the IR of
/// its stage.
Status compileBuckets(llvm::ArrayRef<CompileBucket> buckets,
                      const CompileOptions &options, CompileReport &report);

/// Runs the stages on an imported module and writes OUT.plan and OUT.safetensors. What is
/// wrong is in the status, with the locations of the model's nodes; nothing is printed.
Status compileModule(mlir::ModuleOp module, const CompileOptions &options,
                     CompileReport &report);

} // namespace sluice
