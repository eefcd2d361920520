#pragma once
// Named state during the train stage: declaring symbols, reading them once per entry, and
// the stage's report.

#include "ir/graph/Graph.h"

#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace sluice {

/// The model's name of "param/NAME".
llvm::StringRef modelName(llvm::StringRef symbol);

/// The state of a module by symbol; new symbols follow the existing ones.
class StateSymbols {
public:
  explicit StateSymbols(mlir::ModuleOp module);
  graph::ParameterOp lookup(llvm::StringRef symbol) const {
    return symbols.lookup(symbol);
  }
  /// The symbol's declaration, made if it is not there yet.
  graph::ParameterOp declare(llvm::StringRef symbol, mlir::RankedTensorType type,
                             llvm::StringRef role, llvm::StringRef group = "");
  /// Parameters of role "parameter" in the order of their names: the order of every sum
  /// over parameters.
  std::vector<graph::ParameterOp> parameters() const;

private:
  mlir::ModuleOp module;
  llvm::StringMap<graph::ParameterOp> symbols;
  mlir::Operation *last = nullptr;
};

/// Reads state at the start of an entry, each symbol once.
class EntryReads {
public:
  EntryReads(mlir::func::FuncOp entry, StateSymbols &state);
  mlir::Value read(graph::ParameterOp parameter);
  /// A scalar the runtime sets before the entry runs, such as "control/valid".
  mlir::Value control(llvm::StringRef symbol, mlir::Type element,
                      llvm::StringRef group = "");

private:
  mlir::func::FuncOp entry;
  StateSymbols &state;
  llvm::StringMap<mlir::Value> values;
};

/// Adds a line "topic: text" to the module's report of decisions.
void report(mlir::ModuleOp module, const std::string &line);

/// Adds to the module's `graph.decisions`, pairs of a subject and why.
void decide(mlir::ModuleOp module, llvm::StringRef subject, const std::string &why);

} // namespace sluice
