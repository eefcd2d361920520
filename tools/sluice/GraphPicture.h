#pragma once
// Graphs in the DOT language, of a module at any stage and of a plan, and their rendering
// by Graphviz. What runs again and what is offloaded is marked.

#include "runtime/Plan.h"

#include <set>
#include <string>

namespace mlir {
class ModuleOp;
}

namespace sluice::cli {

/// What the memory decisions make of values, by the names of their nodes.
struct MemoryMarks {
  std::set<std::string> recomputed, offloaded;
  bool empty() const { return recomputed.empty() && offloaded.empty(); }
};

/// The marks that a module has once its plan is made.
MemoryMarks memoryMarks(mlir::ModuleOp planned);

/// A node per operation of each function (regions as one node), edges labelled by type;
/// of a planned module a node per launch. `marks` are shown where a stage has not yet
/// decided.
std::string moduleDot(mlir::ModuleOp module, const MemoryMarks &marks);

/// A node per launch or copy of a program, an edge per buffer from the launch that first
/// writes it to its other users. Launches are filled by the fewest bits of the parameters
/// that they read or write in a stored format.
std::string programDot(const fbs::Plan &plan, const fbs::Program &program);

/// Writes `dot` to a .dot file, or renders it to .svg or .png with Graphviz.
Status writeGraph(const std::string &dot, const std::string &path);

} // namespace sluice::cli
