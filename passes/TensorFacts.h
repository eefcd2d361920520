#pragma once
// What the memory decisions make of each value of the training entry, as an attribute
// that can be read in the IR and ends in the plan file for `explain`.

#include "passes/StepProblem.h"

namespace sluice {

/// Of the entry's function, then of its program: an array of dictionaries {name, choice,
/// bytes, again_us, runs, of}, see TensorFact in runtime/plan.fbs.
inline constexpr llvm::StringLiteral tensorFactsAttr = "graph.tensors";

mlir::ArrayAttr tensorFacts(const StepProblem &step, const RecomputeSolution &solution);

/// The same for an entry that keeps everything, which it leaves alone. An error if a
/// `keep` names nothing.
std::string describeTensors(mlir::func::FuncOp entry, llvm::ArrayRef<std::string> keep);

} // namespace sluice
