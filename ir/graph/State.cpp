// Named state, constants and fused regions: their verifiers and the constant folder.
#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/State.cpp.inc"

// --- parameter

RankedTensorType ParameterOp::getTensorType() {
  return cast<RankedTensorType>(getType());
}

LogicalResult ParameterOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape())
    return emitOpError() << "'" << getSymName() << "' has type " << getType()
                         << ", expected a tensor of static shape";
  static constexpr StringLiteral roles[] = {"parameter", "buffer",      "moment",
                                            "master",    "accumulator", "pending",
                                            "control",   "constant",    "continual"};
  if (!llvm::is_contained(roles, getRole()))
    return emitOpError() << "'" << getSymName() << "' has role '" << getRole()
                         << "', expected parameter, buffer, moment, master, accumulator, "
                            "pending, control, constant or continual";
  if (getTrainable() && getRole() != "parameter")
    return emitOpError() << "'" << getSymName() << "' with role '" << getRole()
                         << "' is trainable, expected role 'parameter'";
  // Of a shard it is that of the whole tensor: each rank takes its rows.
  bool isShard = (*this)->hasAttr(wholeShapeAttr);
  if (getInitAttr() && getInitAttr().getType() != type && !isShard)
    return emitOpError() << "'" << getSymName() << "' has an initial value of type "
                         << getInitAttr().getType() << ", expected " << type;
  return success();
}

// --- read and write

/// Finds the parameter `user` names and compares its type with that of the value read or
/// written.
static LogicalResult verifySymbolUse(Operation *user, FlatSymbolRefAttr symbol,
                                     Type valueType, SymbolTableCollection &tables) {
  auto parameter = tables.lookupNearestSymbolFrom<ParameterOp>(user, symbol);
  if (!parameter)
    return user->emitOpError()
           << "names '" << symbol.getValue()
           << "', expected the symbol of a 'graph.parameter' of this module";
  if (parameter.getType() == valueType)
    return success();
  InFlightDiagnostic diagnostic = user->emitOpError()
                                  << "has type " << valueType << ", expected "
                                  << parameter.getType() << " (type of '"
                                  << symbol.getValue() << "')";
  diagnostic.attachNote(parameter.getLoc())
      << "'" << symbol.getValue() << "' is declared here";
  return diagnostic;
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifySymbolUse(*this, getSymbolAttr(), getValue().getType(), tables);
}

/// The last write of an entry looks at all of them, once.
static LogicalResult verifyWrittenOnce(WriteOp last) {
  for (Operation *op = last->getNextNode(); op; op = op->getNextNode())
    if (isa<WriteOp>(op))
      return success();
  llvm::DenseMap<Attribute, WriteOp> first;
  for (auto write : last->getBlock()->getOps<WriteOp>()) {
    auto [known, added] = first.try_emplace(write.getSymbolAttr(), write);
    if (added)
      continue;
    InFlightDiagnostic diagnostic = write.emitOpError()
                                    << "writes '" << write.getSymbol()
                                    << "' again, expected one write per entry";
    diagnostic.attachNote(known->second.getLoc()) << "the first write is here";
    return diagnostic;
  }
  return success();
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &tables) {
  if (failed(verifySymbolUse(*this, getSymbolAttr(), getValue().getType(), tables)))
    return failure();
  return verifyWrittenOnce(*this);
}

// --- constant

LogicalResult ConstantOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  auto type = dyn_cast<RankedTensorType>(adaptor.getValueAttr().getType());
  if (!type || !type.hasStaticShape())
    return emitOptionalError(loc, "the value of '", getOperationName(), "' has type ",
                             adaptor.getValueAttr().getType(),
                             ", expected a tensor of static shape");
  types.push_back(type);
  return success();
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValueAttr(); }

LogicalResult ConstantOp::evaluate(Evaluation &eval) {
  FailureOr<HostTensor> value = HostTensor::fromAttribute(getValueAttr());
  if (failed(value))
    return emitOpError() << "has a value of a kind or element type that cannot be read: "
                         << getValueAttr().getType();
  eval.result(0) = std::move(*value);
  for (double &x : eval.result(0).reals)
    x = eval.round(x);
  return success();
}

// --- region

/// All values an operation of the body uses are defined in the body.
static LogicalResult verifyClosed(RegionOp region) {
  Region &body = region.getBody();
  WalkResult result = body.walk([&](Operation *op) {
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      if (body.isAncestor(operand.getParentRegion()))
        continue;
      InFlightDiagnostic diagnostic =
          op->emitOpError() << "uses a value from outside the region as operand " << i
                            << ", expected an input of 'graph.region'";
      diagnostic.attachNote(operand.getLoc()) << "the value is defined here";
      return WalkResult::interrupt();
    }
    if (!isa<YieldOp>(op) && !isMemoryEffectFree(op)) {
      op->emitOpError()
          << "reads or writes state inside 'graph.region', expected pure operations only";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// `inner` and `outer` are the same list of types; the words name the two lists.
static LogicalResult verifySameTypes(RegionOp region, TypeRange inner,
                                     StringRef innerName, TypeRange outer,
                                     StringRef outerName) {
  if (inner.size() != outer.size())
    return region.emitOpError()
           << "has " << inner.size() << " " << innerName << "s, expected " << outer.size()
           << " (one per " << outerName << ")";
  for (auto [i, types] : llvm::enumerate(llvm::zip_equal(inner, outer)))
    if (std::get<0>(types) != std::get<1>(types))
      return region.emitOpError()
             << innerName << " " << i << " has type " << std::get<0>(types)
             << ", expected " << std::get<1>(types) << " (type of " << outerName << " "
             << i << ")";
  return success();
}

LogicalResult RegionOp::verify() {
  Block &block = getBody().front();
  if (failed(verifySameTypes(*this, block.getArgumentTypes(), "block argument",
                             getInputs().getTypes(), "input")))
    return failure();
  auto yield = cast<YieldOp>(block.getTerminator());
  if (failed(verifySameTypes(*this, yield.getValues().getTypes(), "yielded value",
                             getOutputs().getTypes(), "output")))
    return failure();
  return verifyClosed(*this);
}

void YieldOp::build(OpBuilder &, OperationState &) {}
