#pragma once
// The offload problem of a module of ordered programs (planning/Offload.h), and the way
// back: a choice as attributes, which stream-offload turns into copies.

#include "passes/PlanLaunches.h"
#include "passes/planning/Offload.h"

#include "mlir/Pass/Pass.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {

/// Launches wait for the copies of a state or buffer with this attribute.
inline constexpr llvm::StringLiteral atOnceAttr = "at_once";

/// What of a module lies in the host's memory, by what survives cloning the module.
struct OffloadNames {
  std::map<std::string, char> states;                     ///< symbol -> level
  std::map<std::string, std::map<int64_t, char>> buffers; ///< entry -> ordinal -> level
  bool empty() const { return states.empty() && buffers.empty(); }
};

/// One program with what its attributes say, and where each tensor comes from.
struct ProgramStream {
  StreamProblem stream;
  std::vector<mlir::Operation *> roots;  ///< by tensor: BufferOp; null for state
  std::vector<mlir::StringAttr> symbols; ///< by tensor of the state
};
ProgramStream streamOf(plan::ProgramOp program);

class OffloadStep {
public:
  /// The programs have been ordered and their launches timed; results have taken the
  /// bytes of operands (mergeInPlace).
  explicit OffloadStep(mlir::ModuleOp module);

  OffloadProblem problem;
  LinkRates link;

  /// State with one of these roles lies in the host's memory.
  OffloadChoice withStates(llvm::ArrayRef<llvm::StringRef> roles) const;
  OffloadChoice withNames(const OffloadNames &names) const;
  OffloadNames names(const OffloadChoice &choice) const;
  /// Subject, why: of each tensor that leaves the device.
  std::vector<std::pair<std::string, std::string>>
  decisions(const OffloadChoice &choice) const;
  int64_t stateBytes() const;
  /// Of movable state that the training entry never touches, and that it only reads.
  int64_t untouchedStateBytes(llvm::StringRef entry) const;
  int64_t readOnlyStateBytes(llvm::StringRef entry) const;

private:
  void addStates(mlir::ModuleOp module);
  void addProgram(plan::ProgramOp program);
  int64_t stateBytes(llvm::StringRef entry, bool touched) const;

  std::vector<ProgramStream> streams;
  std::vector<std::string> entries;
  std::vector<plan::StateOp> states;
  std::map<std::string, int32_t> stateIndex;
};

/// Marks what `names` says, and lays out the state of device and host anew.
void applyOffload(mlir::ModuleOp module, const OffloadNames &names);

/// The pass with a choice beside what attributes say already.
std::unique_ptr<mlir::Pass> createStreamOffload(OffloadNames names);

/// "optimizer", ...: what a state tensor counts as while it is on the device.
llvm::StringRef stateCategory(llvm::StringRef role);

} // namespace sluice
