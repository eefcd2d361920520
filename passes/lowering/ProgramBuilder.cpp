#include "passes/lowering/ProgramBuilder.h"

#include "kernels/Params.h"
#include "passes/PlanLaunches.h"
#include "passes/lowering/Lowerings.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

void collectNames(Location loc, SmallVectorImpl<StringRef> &names) {
  if (auto name = dyn_cast<NameLoc>(loc)) {
    if (!llvm::is_contained(names, name.getName().getValue()))
      names.push_back(name.getName());
  } else if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      collectNames(part, names);
  } else if (auto call = dyn_cast<CallSiteLoc>(loc)) {
    collectNames(call.getCallee(), names);
  }
}

/// Bytes that a launch moves: every operand once.
double bytesOf(ArrayRef<StageSpec> stages) {
  double bytes = 0;
  for (const StageSpec &stage : stages) {
    for (Value value : stage.ins)
      bytes += plan::rangeOf(value).size;
    for (Value value : stage.outs)
      bytes += plan::rangeOf(value).size;
  }
  return bytes;
}

} // namespace

std::string kernelText(graph::RegionOp region) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.useLocalScope()
      .printGenericOpForm()
      .enableDebugInfo(false)
      .elideLargeResourceString();
  region.print(stream, flags);
  return text;
}

std::string nodeNames(Location loc) {
  SmallVector<StringRef> names;
  collectNames(loc, names);
  if (names.size() > 4)
    names.resize(4);
  return llvm::join(names, "+");
}

std::string valueNames(Value value) {
  auto region = value.getDefiningOp<graph::RegionOp>();
  if (!region)
    return nodeNames(value.getLoc());
  Operation *yield = region.getBody().front().getTerminator();
  unsigned number = cast<OpResult>(value).getResultNumber();
  return nodeNames(yield->getOperand(number).getLoc());
}

FlatSymbolRefAttr PlanSymbols::builtin(StringRef name) {
  if (!module.lookupSymbol<plan::KernelOp>(name)) {
    auto builder = OpBuilder::atBlockEnd(module.getBody());
    OperationState state(module.getLoc(), plan::KernelOp::getOperationName());
    state.addAttribute("sym_name", builder.getStringAttr(name));
    state.addRegion();
    builder.create(state);
  }
  return FlatSymbolRefAttr::get(module.getContext(), name);
}

plan::KernelOp PlanSymbols::addKernel(Location loc, int64_t scratch) {
  auto builder = OpBuilder::atBlockEnd(module.getBody());
  OperationState state(loc, plan::KernelOp::getOperationName());
  state.addAttribute("sym_name", builder.getStringAttr("generated"));
  state.addAttribute("scratch", builder.getI64IntegerAttr(scratch));
  state.addRegion()->emplaceBlock();
  return cast<plan::KernelOp>(builder.create(state));
}

FlatSymbolRefAttr PlanSymbols::unique(plan::KernelOp kernel) {
  auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
  auto [entry, added] = generatedByText.try_emplace(kernelText(region));
  if (!added) {
    kernel.erase();
    return entry->second;
  }
  std::string name = "kernel_" + std::to_string(nextKernel++);
  kernel.setSymName(name);
  return entry->second = FlatSymbolRefAttr::get(module.getContext(), name);
}

FlatSymbolRefAttr PlanSymbols::generated(graph::RegionOp region, int64_t scratch) {
  plan::KernelOp kernel = addKernel(region.getLoc(), scratch);
  // The inputs become arguments first, so that equal regions print the same.
  Block &block = kernel.getBody().front();
  SmallVector<Location> locs(region.getInputs().size(), region.getLoc());
  block.addArguments(region.getInputs().getTypes(), locs);
  IRMapping mapping;
  mapping.map(region.getInputs(), block.getArguments());
  auto inside = OpBuilder::atBlockBegin(&block);
  auto copy = cast<graph::RegionOp>(inside.clone(*region, mapping));
  copy->setDiscardableAttrs(ArrayRef<NamedAttribute>());
  return unique(kernel);
}

FlatSymbolRefAttr PlanSymbols::elastic(graph::RegionOp region, ArrayRef<unsigned> outputs,
                                       ElasticForm &form) {
  plan::KernelOp kernel = addKernel(region.getLoc(), 0);
  form = buildElasticForm(region, outputs, kernel.getBody().front());
  return unique(kernel);
}

void PlanSymbols::appendState(plan::StateOp state) {
  int64_t end = 0;
  for (auto other : module.getOps<plan::StateOp>())
    if (other != state)
      end = std::max(end, int64_t(other.getOffset()) + int64_t(other.getSize()));
  state.setOffset(llvm::alignTo(end, lineBytes));
}

FlatSymbolRefAttr PlanSymbols::constant(graph::ConstantOp op) {
  FlatSymbolRefAttr &symbol = constants[op.getValueAttr()];
  if (symbol)
    return symbol;
  std::string name = "const/" + std::to_string(constants.size() - 1);
  auto builder = OpBuilder::atBlockBegin(module.getBody());
  auto states = llvm::to_vector(module.getOps<plan::StateOp>());
  if (!states.empty())
    builder.setInsertionPointAfter(states.back());
  auto type = cast<RankedTensorType>(op.getType());
  OperationState state(op.getLoc(), plan::StateOp::getOperationName());
  state.addAttribute("sym_name", builder.getStringAttr(name));
  state.addAttribute("type", TypeAttr::get(type));
  state.addAttribute("role", builder.getStringAttr("constant"));
  state.addAttribute("offset", builder.getI64IntegerAttr(0));
  state.addAttribute("size", builder.getI64IntegerAttr(plan::tensorBytes(type)));
  state.addAttribute("init", builder.getStringAttr("file"));
  state.addAttribute("value", op.getValueAttr());
  appendState(cast<plan::StateOp>(builder.create(state)));
  return symbol = FlatSymbolRefAttr::get(module.getContext(), name);
}

ProgramBuilder::ProgramBuilder(PlanSymbols &symbols, plan::ProgramOp program,
                               int64_t threads)
    : symbols(symbols), program(program), storage(program.queue()),
      launches(OpBuilder::atBlockEnd(&program.queue().getBody().front())),
      threads(threads) {}

Value ProgramBuilder::buffer(StringRef label, StringRef category, int64_t bytes) {
  return storage.create<plan::BufferOp>(
      program.getLoc(), plan::BufferType::get(storage.getContext()),
      storage.getStringAttr(label), storage.getStringAttr(category),
      storage.getI64IntegerAttr(bytes), IntegerAttr(), IntegerAttr(), IntegerAttr(),
      StringAttr(), UnitAttr(), UnitAttr());
}

Value ProgramBuilder::buffer(StringRef label, StringRef category, Type tensor) {
  Value made = buffer(label, category, plan::tensorBytes(tensor));
  made.getDefiningOp()->setAttr(
      elementAttr, TypeAttr::get(cast<RankedTensorType>(tensor).getElementType()));
  return made;
}

Value ProgramBuilder::stateBuffer(FlatSymbolRefAttr symbol) {
  Value &value = states[symbol.getValue()];
  if (!value)
    value = plan::createStateBuffer(storage, program.getLoc(), symbol);
  return value;
}

Value ProgramBuilder::slice(Value source, int64_t offset, int64_t bytes) {
  if (offset == 0 && plan::rangeOf(source).size == bytes)
    return source;
  return storage.create<plan::SliceOp>(
      program.getLoc(), plan::BufferType::get(storage.getContext()), source,
      storage.getI64IntegerAttr(offset), storage.getI64IntegerAttr(bytes));
}

Value ProgramBuilder::bufferOf(Value value) {
  if (Value buffer = buffers.lookup(value))
    return buffer;
  if (failed(lowerOperation(value.getDefiningOp(), *this))) {
    failedViews = true;
    return destination(value);
  }
  assert(buffers.lookup(value) && "a view that is read is written by nobody else");
  return buffers.lookup(value);
}

Value ProgramBuilder::destination(Value result) {
  Value &bound = buffers[result];
  if (bound)
    return bound;
  bound = buffer(valueNames(result), "activations", result.getType());
  Operation *producer = result.getDefiningOp();
  if (Attribute run = producer ? producer->getAttr(recomputeAttr) : Attribute())
    bound.getDefiningOp()->setAttr(recomputeAttr, run);
  return bound;
}

void ProgramBuilder::stage(Location loc, const StageSpec &spec) {
  SmallVector<Value> scratch;
  DenseI64ArrayAttr workerStrides;
  if (spec.scratchBytes > 0) {
    int64_t stride = llvm::alignTo(spec.scratchBytes, lineBytes);
    scratch.push_back(buffer("scratch", "workspace", stride * threads));
    SmallVector<int64_t> strides(spec.ins.size() + spec.outs.size(), 0);
    strides.push_back(stride);
    workerStrides = launches.getDenseI64ArrayAttr(strides);
  }
  auto inPlace =
      spec.inPlace.empty() ? nullptr : launches.getDenseI64ArrayAttr(spec.inPlace);
  launches.create<plan::StageOp>(loc, spec.kernel, spec.ins, spec.outs, scratch,
                                 launches.getDenseI64ArrayAttr(spec.params),
                                 launches.getI64IntegerAttr(1), workerStrides,
                                 DenseI64ArrayAttr(), inPlace, DenseI64ArrayAttr());
}

plan::LaunchOp ProgramBuilder::launch(Operation *op, const LaunchSpec &spec,
                                      ArrayRef<StageSpec> stages) {
  if (spec.units == 0)
    return {};
  OperationState state(op->getLoc(), plan::LaunchOp::getOperationName());
  state.addAttribute("label", launches.getStringAttr(spec.label));
  state.addAttribute(
      "node",
      launches.getStringAttr(spec.node.empty() ? nodeNames(op->getLoc()) : spec.node));
  state.addAttribute("units", launches.getI64IntegerAttr(spec.units));
  state.addAttribute("chunk",
                     launches.getI64IntegerAttr(std::max<int64_t>(1, spec.chunk)));
  state.addAttribute("flops", launches.getF64FloatAttr(spec.flops));
  state.addAttribute("bytes", launches.getF64FloatAttr(bytesOf(stages) - spec.untouched));
  if (Attribute run = op->getAttr(runAttr))
    state.addAttribute(runAttr, run);
  state.addRegion()->emplaceBlock();
  if (Attribute run = op->getAttr(recomputeAttr))
    state.addAttribute(recomputeAttr, run);
  auto launchOp = cast<plan::LaunchOp>(launches.create(state));
  OpBuilder::InsertionGuard guard(launches);
  launches.setInsertionPointToEnd(&launchOp.getBody().front());
  for (const StageSpec &each : stages)
    stage(op->getLoc(), each);
  return launchOp;
}

void ProgramBuilder::copy(Operation *op, Value from, Value to, int64_t elements,
                          int64_t elementBytes) {
  int64_t one = 1;
  CopyParams params = planCopy(elementBytes, 1, &elements, &one, 0, &one, 0);
  launch(op, {"copy", copyUnits(params), 1, 0},
         {symbols.builtin("copy_strided"), {from}, {to}, 0, packParams(params), {}});
}

} // namespace sluice
