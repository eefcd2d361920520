// LowerGraphToPlan: one plan.program per entry, every value given a range of bytes, every
// operation its launches. Offsets in the step reservation are decided later (PlanMemory),
// when the order is known; those of the state here, once for all programs.

#include "ir/graph/Shapes.h"
#include "passes/Collectives.h"
#include "passes/NarrowReads.h"
#include "passes/Passes.h"
#include "passes/StateLayout.h"
#include "passes/StateWrites.h"
#include "passes/StoredState.h"
#include "passes/TensorFacts.h"
#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_LOWERGRAPHTOPLAN
#include "passes/Passes.h.inc"
namespace {

plan::ProgramOp createProgram(func::FuncOp function) {
  OpBuilder builder(function);
  OperationState state(function.getLoc(), plan::ProgramOp::getOperationName());
  state.addAttribute("entry", builder.getStringAttr(function.getSymName()));
  if (Attribute facts = function->getAttr(tensorFactsAttr))
    state.addAttribute(tensorFactsAttr, facts);
  Block &body = state.addRegion()->emplaceBlock();
  builder.setInsertionPointToStart(&body);
  OperationState queue(function.getLoc(), plan::QueueOp::getOperationName());
  queue.addAttribute("sym_name", builder.getStringAttr("compute"));
  queue.addRegion()->emplaceBlock();
  builder.create(queue);
  builder.setInsertionPoint(function);
  return cast<plan::ProgramOp>(builder.create(state));
}

/// Lowers one entry.
class EntryLowering {
public:
  EntryLowering(func::FuncOp function, PlanSymbols &symbols, int64_t threads)
      : function(function), targets(placeStateWrites(function)),
        builder(symbols, createProgram(function), threads) {}

  LogicalResult run() {
    bindInputs();
    for (auto &[root, symbol] : targets)
      builder.bind(root, builder.stateBuffer(symbol));
    bindOutputs();
    bindGradients();
    bindSharedGradients();
    bindAddedSums(function.getBody().front(), builder);
    Block &block = function.getBody().front();
    bool failedAny = false; // report all, not the first
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
      if (failed(lower(&op))) {
        failedAny = true;
        for (Value result : op.getResults())
          builder.destination(result);
      }
    if (failedAny)
      return failure();
    createOutputs();
    return failure(builder.failedViews);
  }

private:
  StringAttr nameOf(DictionaryAttr attributes, StringRef what, unsigned i) {
    if (auto name = attributes ? attributes.getAs<StringAttr>("graph.name") : nullptr)
      return name;
    return builder.storage.getStringAttr(what + Twine(i));
  }

  void bindInputs() {
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      DictionaryAttr attributes = function.getArgAttrDict(i);
      StringAttr name = nameOf(attributes, "input", i);
      Value buffer = builder.buffer(name, "io", argument.getType());
      builder.bind(argument, buffer);
      auto flag = [&](StringRef key) {
        return attributes ? attributes.get(key) : nullptr;
      };
      auto input = builder.storage.create<plan::InputOp>(
          function.getLoc(), name, buffer, TypeAttr::get(argument.getType()),
          flag("graph.batched") ? builder.storage.getUnitAttr() : UnitAttr(),
          llvm::dyn_cast_or_null<DenseI64ArrayAttr>(flag("graph.bounds")),
          llvm::dyn_cast_or_null<IntegerAttr>(flag("graph.ignored")));
      if (Attribute fill = flag("graph.fill"))
        input->setAttr("plan.fill", fill);
    }
  }

  void bindOutputs() {
    Operation *terminator = function.getBody().front().getTerminator();
    for (OpOperand &operand : terminator->getOpOperands()) {
      StringAttr name = outputName(operand.getOperandNumber());
      builder.bind(storageRoot(operand.get()),
                   builder.buffer(name, "io", operand.get().getType()));
    }
  }

  StringAttr outputName(unsigned i) {
    return nameOf(function.getResultAttrDict(i), "output", i);
  }

  /// What an update reads beside the state, as large as its parameter, is a gradient.
  void bindGradients() {
    for (auto &[root, symbol] : targets) {
      auto region = root.getDefiningOp<graph::RegionOp>();
      auto state = SymbolTable::lookupNearestSymbolFrom<plan::StateOp>(function, symbol);
      if (!region || (state.getRole() != "parameter" && state.getRole() != "accumulator"))
        continue;
      int64_t elements = state.getTensorType().getNumElements();
      if (auto shape = state->getAttrOfType<DenseI64ArrayAttr>(valueShapeAttr))
        elements = graph::product(shape.asArrayRef());
      for (Value input : region.getInputs()) {
        Value source = storageRoot(input);
        auto type = graph::tensorType(source);
        if (source.getDefiningOp() && !builder.find(source) &&
            !isa<graph::ReadOp, graph::ConstantOp, graph::SliceOp>(
                source.getDefiningOp()) &&
            !isReducedState(source) && type.getNumElements() == elements)
          builder.bind(source, builder.buffer(state.getSymName().split('/').second,
                                              "gradients", source.getType()));
      }
    }
  }

  /// Of updates that ranks share out: what is summed over ranks, and the own rows.
  void bindSharedGradients() {
    for (auto sum : function.getBody().front().getOps<graph::ReduceScatterOp>()) {
      StringRef name = sum.getName();
      name.consume_front("grad/");
      Value whole = storageRoot(sum.getX());
      Operation *producer = whole.getDefiningOp();
      bool isOwn =
          producer && !isReadNarrow(producer) &&
          !isa<graph::ReadOp, graph::ConstantOp, graph::SliceOp, graph::TransposeOp>(
              producer);
      if (isOwn && !builder.find(whole) && !targets.count(whole))
        builder.bind(whole, builder.buffer(name, "gradients", whole.getType()));
      if (!builder.find(sum.getY()))
        builder.bind(sum.getY(), builder.buffer(name, "gradients", sum.getType()));
    }
  }

  static bool isReducedState(Value value) {
    auto sum = value.getDefiningOp<graph::AllReduceOp>();
    return sum && reducesInPlace(sum);
  }

  LogicalResult lower(Operation *op) {
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      builder.bind(read.getValue(), builder.stateBuffer(read.getSymbolAttr()));
      return success();
    }
    if (isa<graph::WriteOp>(op))
      return success(); // the producer has written the state
    // Views are lowered where they are read: products may not need them.
    // Nothing reads what recompute has left behind.
    if (isReadNarrow(op) || isOpTriviallyDead(op))
      return success();
    bool view = isa<graph::ReshapeOp, graph::TransposeOp, graph::SliceOp>(op);
    if (view && !op->hasAttr(copyAttr) && !builder.find(op->getResult(0)) &&
        !builder.isWritten(op->getOperand(0)))
      return success();
    return lowerOperation(op, builder);
  }

  void createOutputs() {
    Operation *terminator = function.getBody().front().getTerminator();
    for (OpOperand &operand : terminator->getOpOperands()) {
      unsigned i = operand.getOperandNumber();
      auto output = builder.storage.create<plan::OutputOp>(
          function.getLoc(), outputName(i), builder.bufferOf(operand.get()),
          TypeAttr::get(operand.get().getType()));
      if (Attribute batched = function.getResultAttr(i, "graph.batched"))
        output->setAttr("plan.batched", batched);
      if (Attribute crops = function.getResultAttr(i, "graph.crops"))
        output->setAttr("plan.crops", crops);
    }
    if (Attribute mixes = function->getAttr("graph.mixes"))
      builder.program->setAttr("plan.mixes", mixes);
  }

  func::FuncOp function;
  StateTargets targets;
  ProgramBuilder builder;
};

struct LowerGraphToPlan : impl::LowerGraphToPlanBase<LowerGraphToPlan> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    layOutState(module);
    PlanSymbols symbols(module);
    auto threads = module->getAttrOfType<IntegerAttr>("graph.threads");
    int64_t workers = threads ? threads.getInt() : 1;
    auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
    bool failedAny = false;
    for (func::FuncOp function : functions)
      failedAny |= failed(EntryLowering(function, symbols, workers).run());
    if (failedAny)
      return signalPassFailure();
    for (func::FuncOp function : functions)
      function.erase();
  }
};

} // namespace

std::unique_ptr<Pass> createLowerGraphToPlan() {
  return std::make_unique<LowerGraphToPlan>();
}
} // namespace sluice
