#pragma once
// Graphs in the DOT language, of a module at any stage and of a plan, and their rendering
// by Graphviz.

#include "runtime/Plan.h"

#include <string>

namespace mlir {
class ModuleOp;
}

namespace sluice::cli {

/// A node per operation of each function (regions as one node), edges labelled by type.
std::string moduleDot(mlir::ModuleOp module);

/// A node per launch of a program, an edge per buffer from the launch that first writes
/// it to its other users.
std::string programDot(const fbs::Program &program);

/// Writes `dot` to a .dot file, or renders it to .svg or .png with Graphviz.
Status writeGraph(const std::string &dot, const std::string &path);

} // namespace sluice::cli
