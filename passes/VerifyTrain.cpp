// Ends the train stage. That symbols exist, have the type used and are written once per
// entry is checked by the operations themselves; here stands what no single operation
// sees.

#include "passes/EntryFunctions.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"
#include "passes/UpdateGroups.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_VERIFYTRAIN
#include "passes/Passes.h.inc"

namespace {

/// Every argument and result has a name of its own.
LogicalResult checkNames(func::FuncOp entry) {
  llvm::StringSet<> arguments, results;
  for (unsigned i = 0; i < entry.getNumArguments(); ++i) {
    StringRef name = argumentName(entry, i);
    if (name.empty() || !arguments.insert(name).second)
      return entry.emitError() << "argument " << i << " of '" << entry.getSymName()
                               << "' has the name '" << name
                               << "', expected one of its own";
  }
  for (unsigned i = 0; i < entry.getNumResults(); ++i) {
    StringRef name = resultName(entry, i);
    if (name.empty() || !results.insert(name).second)
      return entry.emitError() << "result " << i << " of '" << entry.getSymName()
                               << "' has the name '" << name
                               << "', expected one of its own";
  }
  return success();
}

LogicalResult checkWrites(func::FuncOp entry, const StateSymbols &state) {
  bool trains = llvm::is_contained({"step", "micro", "close_rank"}, entry.getSymName()) ||
                isUpdateEntry(entry.getSymName());
  WalkResult result = entry.walk([&](graph::WriteOp write) -> WalkResult {
    if (!trains)
      return write.emitError()
             << "'" << entry.getSymName() << "' writes '" << write.getSymbol()
             << "', expected state to change in step, micro, close_rank and update only";
    graph::ParameterOp target = state.lookup(write.getSymbol());
    if (target.getSymName().starts_with("control/"))
      return write.emitError() << "'" << entry.getSymName() << "' writes the control '"
                               << write.getSymbol() << "', which the runtime sets";
    if (target.getRole() == "parameter" && !target.getTrainable())
      return write.emitError() << "'" << entry.getSymName() << "' writes '"
                               << write.getSymbol() << "', which is frozen";
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// What trains is written by the entry that updates.
LogicalResult checkUpdates(ModuleOp module, const StateSymbols &state) {
  func::FuncOp update; // of several entries each writes some groups
  llvm::StringSet<> written;
  for (auto entry : module.getOps<func::FuncOp>())
    if (isUpdateEntry(entry.getSymName()) || entry.getSymName() == "step") {
      update = update ? update : entry;
      entry.walk([&](graph::WriteOp write) { written.insert(write.getSymbol()); });
    }
  if (!update)
    return success();
  for (graph::ParameterOp parameter : state.parameters())
    if (parameter.getTrainable() && !written.contains(parameter.getSymName()))
      return parameter.emitError()
             << "'" << parameter.getSymName() << "' is trainable, but '"
             << update.getSymName() << "' does not write it";
  return success();
}

class VerifyTrain : public impl::VerifyTrainBase<VerifyTrain> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    StateSymbols state(module);
    if (auto forward = module.lookupSymbol<func::FuncOp>("forward")) {
      forward.emitError("'forward' is still there after the train stage");
      return signalPassFailure();
    }
    for (auto entry : module.getOps<func::FuncOp>())
      if (failed(checkNames(entry)) || failed(checkWrites(entry, state)))
        return signalPassFailure();
    if (failed(checkUpdates(module, state)))
      signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createVerifyTrain() { return std::make_unique<VerifyTrain>(); }

} // namespace sluice
