#ifndef SLUICE_IR_GRAPH_INTERFACES_TD
#define SLUICE_IR_GRAPH_INTERFACES_TD

include "mlir/IR/OpBase.td"

// Behaviour that passes ask for instead of switching on operation names; implemented beside each operation.

def Graph_Evaluable : OpInterface<"Evaluable"> {
  let description = "Runs the operation on host tensors; the reference of every kernel.";
  let cppNamespace = "::sluice::graph";
  let methods = [InterfaceMethod<
    "Computes the results of `eval` from its operands, in double or float as `eval` says.",
    "::llvm::LogicalResult", "evaluate", (ins "::sluice::graph::Evaluation &":$eval)>];
}

def Graph_Differentiable : OpInterface<"Differentiable"> {
  let description = "Builds the vector-Jacobian product with respect to the operands that need it.";
  let cppNamespace = "::sluice::graph";
  let methods = [InterfaceMethod<
    "Adds operations at the builder's insertion point and sets `cotangents` of the operands that `context` needs.",
    "::llvm::LogicalResult", "buildGradient",
    (ins "::mlir::OpBuilder &":$builder, "::sluice::graph::GradientContext &":$context)>];
}

def Graph_Decomposable : OpInterface<"Decomposable"> {
  let description = "A composite: can be written with simpler operations, down to the core.";
  let cppNamespace = "::sluice::graph";
  let methods = [InterfaceMethod<
    "Builds the equivalent at the insertion point and returns one value per result.",
    "::llvm::SmallVector<::mlir::Value>", "decompose", (ins "::mlir::OpBuilder &":$builder)>];
}

def Graph_Costed : OpInterface<"Costed"> {
  let description = "Arithmetic of one execution; bytes follow from the operand and result types.";
  let cppNamespace = "::sluice::graph";
  let methods = [InterfaceMethod<"Floating-point operations.", "double", "flops", (ins)>];
}

def Graph_Elementwise : OpInterface<"Elementwise"> {
  let description = [{
    Same shape in and out, each element on its own. `emitVector` writes the operation on vectors of 16 lanes with
    arith, math and vector operations (floating point as f32; i1 as vector<16xi1>; integers as vector<16xi64>, i32 as vector<16xi32>);
    the code it writes defines the operation's bits (no transcendental math operation may be left in it).
  }];
  let cppNamespace = "::sluice::graph";
  let methods = [
    InterfaceMethod<"Vector code of one step.", "::mlir::Value", "emitVector",
      (ins "::mlir::ImplicitLocOpBuilder &":$builder, "::mlir::ValueRange":$operands)>,
    InterfaceMethod<"True if recomputing from operands costs more than a memory access (exp, tanh, division, ...).",
      "bool", "isExpensive", (ins), "", "return false;">];
}

def Graph_PrecisionRule : OpInterface<"PrecisionRule"> {
  let description = [{
    What becomes of an operation under mixed precision. Operations without the interface compute in f32 and their results stay exact.
  }];
  let cppNamespace = "::sluice::graph";
  let methods = [
    InterfaceMethod<"How the operation takes part.", "::sluice::graph::PrecisionKind", "precision", (ins)>,
    InterfaceMethod<"Of a product: how many of its operands, from the first on, are rounded; the others stay as they are.",
      "unsigned", "roundedOperands", (ins), "", "return $_op->getNumOperands();">,
    InterfaceMethod<"Of a product: how many of its results are rounded.", "unsigned", "roundedResults", (ins), "", "return 1;">];
}

def Graph_TrainingMode : OpInterface<"TrainingMode"> {
  let description = "Behaves differently in evaluation (dropout, batch statistics).";
  let cppNamespace = "::sluice::graph";
  let methods = [
    InterfaceMethod<"Builds what replaces the results in the eval and infer entries.",
      "::llvm::SmallVector<::mlir::Value>", "evaluationForm", (ins "::mlir::OpBuilder &":$builder)>,
    InterfaceMethod<"In a training step: builds the updates and writes of running statistics, once.",
      "void", "recordStatistics", (ins "::mlir::OpBuilder &":$builder), "", "(void)builder;">];
}

def Graph_Collective : OpInterface<"Collective"> {
  let description = [{
    All ranks take part in it, each as often as the others and in the same order. Such operations have memory effects: they are
    never joined, removed, fused or run again.
  }];
  let cppNamespace = "::sluice::graph";
  let methods = [
    InterfaceMethod<"What it is called on every rank.", "::llvm::StringRef", "collectiveName", (ins)>,
    InterfaceMethod<"Computes the results of all ranks, in the order of ranks; the operation is that of rank 0.",
      "::llvm::LogicalResult", "evaluateRanks", (ins "::llvm::MutableArrayRef<::sluice::graph::Evaluation>":$ranks)>];
}

#endif
