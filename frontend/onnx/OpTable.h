#pragma once
// All operators, by domain. To add one: write its function in the file of its family and
// add a line to that file's table.

#include "frontend/onnx/Node.h"

namespace sluice::frontend {

/// Null if there is none.
Handler findHandler(llvm::StringRef domain, llvm::StringRef op);
/// All operators of a domain ("" or "com.microsoft"), sorted.
std::vector<std::string> operatorNames(llvm::StringRef domain);

/// Why there is none.
std::string unknownReason(const onnx::NodeProto &node);

/// A call of a model-local function (ControlFlow.cpp).
LogicalResult importCall(Node &node);
/// Replaces attributes of a function's node that refer to attributes of the call.
void bindAttributes(onnx::NodeProto &node, const onnx::NodeProto &call,
                    const onnx::FunctionProto &function);

// The families.
void addMath(OpTable &table);
void addActivation(OpTable &table);
void addLogic(OpTable &table);
void addReduce(OpTable &table);
void addMatMul(OpTable &table);
void addEinsum(OpTable &table);
void addConv(OpTable &table);
void addPool(OpTable &table);
void addPoolIndices(OpTable &table);
void addDeterminant(OpTable &table);
void addRoi(OpTable &table);
void addBlocks(OpTable &table);
void addSequence(OpTable &table);
void addKnown(OpTable &table);
void addNGrams(OpTable &table);
void addNorm(OpTable &table);
void addSoftmax(OpTable &table);
void addShape(OpTable &table);
void addSlice(OpTable &table);
void addPad(OpTable &table);
void addConstant(OpTable &table);
void addGather(OpTable &table);
void addSort(OpTable &table);
void addResize(OpTable &table);
void addGridSample(OpTable &table);
void addAttention(OpTable &table);
void addLoss(OpTable &table);
void addRnn(OpTable &table);
void addControlFlow(OpTable &table);
void addRandom(OpTable &table);
void addQuantize(OpTable &table);
void addSignal(OpTable &table);
void addMicrosoft(OpTable &table); // domain com.microsoft
void addMicrosoftAttention(OpTable &table);

} // namespace sluice::frontend
