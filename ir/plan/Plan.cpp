// Verifiers of the plan dialect: what can be seen from one operation. Whether buffers
// overlap in time and whether launches stay inside their operands is proved by
// passes/VerifyPlan.

#include "ir/plan/Plan.h"

#include "ir/graph/Graph.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace sluice::plan;

#include "ir/plan/PlanDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/plan/PlanTypes.cpp.inc"
#define GET_OP_CLASSES
#include "ir/plan/Plan.cpp.inc"

void PlanDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "ir/plan/PlanTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/plan/Plan.cpp.inc"
      >();
}

int64_t sluice::plan::elementBytes(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.getWidth() == 1 ? 1 : (integer.getWidth() + 7) / 8;
  if (auto real = dyn_cast<FloatType>(type))
    return real.getWidth() / 8;
  return 0;
}

int64_t sluice::plan::tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * elementBytes(tensor.getElementType());
}

int64_t sluice::plan::redZoneOf(Operation *op) {
  auto module = isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  auto bytes = module ? module->getAttrOfType<IntegerAttr>("plan.red_zone") : nullptr;
  return bytes ? bytes.getInt() : 0;
}

StateOp sluice::plan::stateOf(StateBufferOp buffer) {
  auto program = buffer->getParentOfType<ProgramOp>();
  auto module = program ? dyn_cast<ModuleOp>(program->getParentOp()) : nullptr;
  // Equal names are one attribute; a lookup compares the text of every symbol.
  StringAttr name = buffer.getSymbolAttr().getAttr();
  if (module)
    for (auto state : module.getOps<StateOp>())
      if (state.getSymNameAttr() == name)
        return state;
  return nullptr;
}

static IntegerAttr notedBytes(StateBufferOp buffer) {
  return llvm::dyn_cast_or_null<IntegerAttr>(buffer->getDiscardableAttr(stateBytesAttr));
}

static int64_t bytesOf(StateBufferOp buffer) {
  if (IntegerAttr bytes = notedBytes(buffer))
    return bytes.getInt();
  StateOp state = stateOf(buffer);
  return state ? static_cast<int64_t>(state.getSize()) : 0;
}

StateBufferOp sluice::plan::createStateBuffer(OpBuilder &builder, Location loc,
                                              FlatSymbolRefAttr symbol) {
  auto type = BufferType::get(builder.getContext());
  auto buffer = builder.create<StateBufferOp>(loc, type, symbol);
  buffer->setDiscardableAttr(stateBytesAttr, builder.getI64IntegerAttr(bytesOf(buffer)));
  return buffer;
}

BufferRange sluice::plan::rangeOf(Value buffer) {
  BufferRange range;
  bool sized = false;
  while (auto slice = buffer.getDefiningOp<SliceOp>()) {
    range.offset += static_cast<int64_t>(slice.getOffset());
    if (!sized)
      range.size = slice.getSize();
    sized = true;
    buffer = slice.getSource();
  }
  range.root = buffer.getDefiningOp();
  if (sized)
    return range;
  if (auto owned = dyn_cast<BufferOp>(range.root)) {
    range.size = owned.getSize();
  } else if (auto state = dyn_cast<StateBufferOp>(range.root)) {
    range.size = bytesOf(state);
  }
  return range;
}

RankedTensorType StateOp::getTensorType() { return cast<RankedTensorType>(getType()); }

LogicalResult StateOp::verify() {
  auto tensor = dyn_cast<RankedTensorType>(getType());
  if (!tensor || !tensor.hasStaticShape())
    return emitOpError("needs a tensor type of static shape, found ") << getType();
  if (int64_t(getSize()) != tensorBytes(tensor))
    return emitOpError("has ") << getSize() << " bytes, expected " << tensorBytes(tensor)
                               << " for " << tensor;
  bool knownRole =
      llvm::StringSwitch<bool>(getRole())
          .Cases("parameter", "buffer", "moment", "master", true)
          .Cases("accumulator", "pending", "control", "constant", "continual", true)
          .Default(false);
  if (!knownRole)
    return emitOpError("has the unknown role '") << getRole() << "'";
  bool knownInit = llvm::StringSwitch<bool>(getInit())
                       .Cases("zeros", "fill", "file", true)
                       .Default(false);
  if (!knownInit)
    return emitOpError("has the unknown init '") << getInit() << "'";
  if (getSpace() && *getSpace() != "host" && *getSpace() != "device")
    return emitOpError("lies in the unknown space '") << *getSpace() << "'";
  if ((getInit() == "file") != getValue().has_value())
    return emitOpError("needs a 'value' with init 'file', and only then");
  return success();
}

LogicalResult KernelOp::verify() {
  if (!isGenerated())
    return success();
  Block &body = getBody().front();
  if (body.getOperations().size() != 1 || !isa<graph::RegionOp>(body.front()))
    return emitOpError("needs a body of one 'graph.region'");
  return success();
}

static QueueOp queueNamed(ProgramOp program, StringRef name) {
  for (auto queue : program.getBody().front().getOps<QueueOp>())
    if (queue.getSymName() == name)
      return queue;
  return {};
}
QueueOp ProgramOp::queue() { return queueNamed(*this, "compute"); }
QueueOp ProgramOp::copyQueue() { return queueNamed(*this, "copy"); }
QueueOp ProgramOp::commQueue() { return queueNamed(*this, "comm"); }

static LogicalResult verifyQueue(QueueOp queue) {
  StringRef name = queue.getSymName();
  bool computes = name == "compute", copies = name == "copy";
  if (!computes && !copies && name != "comm")
    return queue.emitOpError("is named '")
           << name << "', expected 'compute', 'copy' or 'comm'";
  for (Operation &op : queue.getBody().front()) {
    bool known = isa<WaitOp, SignalOp>(op) || (computes ? isa<LaunchOp>(op)
                                               : copies ? isa<CopyOp>(op)
                                                        : isa<CollectiveOp>(op));
    if (!known)
      return op.emitOpError("is not allowed in the queue '") << name << "'";
    auto wait = dyn_cast<WaitOp>(op);
    if (!wait)
      continue;
    StringRef other = wait.getQueue();
    if (computes ? other != "copy" && other != "comm" : other != "compute")
      return op.emitOpError("waits for '")
             << other << "', expected " << (computes ? "'copy' or 'comm'" : "'compute'");
  }
  return success();
}

LogicalResult ProgramOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<BufferOp, StateBufferOp, SliceOp, InputOp, OutputOp, QueueOp>(op))
      return op.emitOpError("is not allowed in a 'plan.program'");
  int64_t queues = 0;
  for (auto queue : getBody().front().getOps<QueueOp>()) {
    if (failed(verifyQueue(queue)))
      return failure();
    ++queues;
  }
  if (!queue() || queues != 1 + bool(copyQueue()) + bool(commQueue()))
    return emitOpError("has ")
           << queues << " queues, expected 'compute' and at most one 'copy' and 'comm'";
  return success();
}

LogicalResult BufferOp::verify() {
  bool known =
      llvm::StringSwitch<bool>(getCategory())
          .Cases("activations", "gradients", "optimizer", "workspace", "io", true)
          .Case("parameters", true)
          .Default(false);
  if (!known)
    return emitOpError("has the unknown category '") << getCategory() << "'";
  if (int64_t(getSize()) < 0 || (getOffset() && int64_t(*getOffset()) < 0))
    return emitOpError("has a negative size or offset");
  if (getSpace() && *getSpace() != "host" && *getSpace() != "device")
    return emitOpError("lies in the unknown space '") << *getSpace() << "'";
  if (getFirst() && int64_t(*getFirst()) > int64_t(*getLast()))
    return emitOpError("is live from ")
           << int64_t(*getFirst()) << " to " << int64_t(*getLast()) << ", which is never";
  return success();
}

LogicalResult StateBufferOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto program = (*this)->getParentOfType<ProgramOp>();
  StateOp state = program ? symbols.lookupNearestSymbolFrom<StateOp>(
                                program->getParentOp(), getSymbolAttr())
                          : nullptr;
  if (!state)
    return emitOpError("names '") << getSymbol() << "', which is no 'plan.state'";
  if (IntegerAttr bytes = notedBytes(*this);
      bytes && bytes.getInt() != int64_t(state.getSize()))
    return emitOpError("has ") << bytes.getInt() << " bytes of '" << getSymbol()
                               << "', expected " << int64_t(state.getSize());
  return success();
}

LogicalResult SliceOp::verify() {
  if (!getSource().getDefiningOp<StateBufferOp>()) {
    BufferRange range = rangeOf(getSource());
    int64_t end = int64_t(getOffset()) + int64_t(getSize());
    if (int64_t(getOffset()) < 0 || int64_t(getSize()) < 0 || end > range.size)
      return emitOpError("ends at byte ") << end << " of a buffer of " << range.size;
  }
  return success();
}

static LogicalResult verifyPort(Operation *op, Value buffer, Type type, StringRef name) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return op->emitOpError("needs a tensor type of static shape for '") << name << "'";
  if (buffer.getDefiningOp<StateBufferOp>())
    return success();
  BufferRange range = rangeOf(buffer);
  if (range.size < tensorBytes(tensor))
    return op->emitOpError("'") << name << "' needs " << tensorBytes(tensor)
                                << " bytes, its buffer has " << range.size;
  return success();
}

LogicalResult InputOp::verify() {
  if (getBounds() && getBounds()->size() != 2)
    return emitOpError("needs two bounds, found ") << getBounds()->size();
  return verifyPort(*this, getBuffer(), getType(), getName());
}

LogicalResult OutputOp::verify() {
  return verifyPort(*this, getBuffer(), getType(), getName());
}

LogicalResult LaunchOp::verify() {
  if (int64_t(getUnits()) < 0 || int64_t(getChunk()) < 1)
    return emitOpError("has ") << int64_t(getUnits()) << " units in chunks of "
                               << int64_t(getChunk());
  Block &body = getBody().front();
  if (body.empty())
    return emitOpError("has no stage");
  for (Operation &op : body)
    if (!isa<StageOp>(op))
      return op.emitOpError("is not allowed in a 'plan.launch'");
  bool hasParts = cast<StageOp>(body.front()).getPart().has_value();
  int64_t next = 0; // unit that no part has yet
  for (auto stage : body.getOps<StageOp>()) {
    auto part = stage.getPart();
    if (part.has_value() != hasParts)
      return stage.emitOpError("must have a 'part' as all stages of its launch, or none");
    if (!part)
      continue;
    if (part->size() != 2 || (*part)[0] != next || (*part)[1] < 1)
      return stage.emitOpError("'part' needs the unit it begins with, here ")
             << next << ", and a count of units";
    next += (*part)[1];
  }
  if (hasParts && next != int64_t(getUnits()))
    return emitOpError("has ") << int64_t(getUnits()) << " units, its parts " << next;
  return success();
}

int64_t StageOp::units() {
  if (auto part = getPart())
    return (*part)[1];
  return cast<LaunchOp>((*this)->getParentOp()).getUnits();
}

LogicalResult CopyOp::verify() {
  auto from = getSource().getDefiningOp<BufferOp>(),
       to = getTarget().getDefiningOp<BufferOp>();
  if (from && to && from.getSize() != to.getSize())
    return emitOpError("moves ")
           << from.getSize() << " bytes to a buffer of " << to.getSize();
  return success();
}

LogicalResult CollectiveOp::verify() {
  bool isGather = getKind() == "all_gather";
  if (getKind() != "all_reduce" && getKind() != "reduce_scatter" && !isGather)
    return emitOpError("is of the unknown kind '") << getKind() << "'";
  if (getNames().size() != getIns().size() || getIns().empty())
    return emitOpError("has ") << getNames().size() << " names for " << getIns().size()
                               << " buffers";
  auto rows = (*this)->getAttrOfType<DenseI64ArrayAttr>(collectiveRowsAttr);
  if ((getKind() == "all_reduce") != !rows ||
      (rows && rows.size() != int64_t(getIns().size())))
    return emitOpError("of the kind '")
           << getKind() << "' needs as many '" << collectiveRowsAttr << "' as buffers, "
           << "a sum over all elements none";
  Type element = getElement();
  if (!isGather && !element.isF32() && !element.isF64() && !element.isInteger(64))
    return emitOpError("cannot add elements of type ") << element;
  return success();
}

LogicalResult StageOp::verify() {
  size_t count = getOperands().size();
  if (getWorkerStrides() && getWorkerStrides()->size() != count)
    return emitOpError("has ") << getWorkerStrides()->size() << " worker strides for "
                               << count << " operands";
  if (getUnitStrides() && getUnitStrides()->size() != count)
    return emitOpError("has ") << getUnitStrides()->size() << " unit strides for "
                               << count << " operands";
  if (int64_t(getUnitScale()) < 1)
    return emitOpError("has unit scale ") << int64_t(getUnitScale());
  if (getInPlace()) {
    ArrayRef<int64_t> pairs = *getInPlace();
    if (pairs.size() % 2)
      return emitOpError("'in_place' needs pairs of (input, output)");
    for (size_t i = 0; i < pairs.size(); i += 2)
      if (pairs[i] < 0 || pairs[i] >= int64_t(getIns().size()) || pairs[i + 1] < 0 ||
          pairs[i + 1] >= int64_t(getOuts().size()))
        return emitOpError("'in_place' names input ")
               << pairs[i] << " and output " << pairs[i + 1] << " of " << getIns().size()
               << " and " << getOuts().size();
  }
  return success();
}

LogicalResult StageOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto program = (*this)->getParentOfType<ProgramOp>();
  if (!program ||
      !symbols.lookupNearestSymbolFrom<KernelOp>(program->getParentOp(), getKernelAttr()))
    return emitOpError("names '") << getKernel() << "', which is no 'plan.kernel'";
  return success();
}
