// Runs graph functions on host tensors, op by op.
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace mlir;

namespace sluice::graph {

// --- host tensors

int64_t HostTensor::size() const { return product(shape); }

HostTensor HostTensor::zeros(RankedTensorType type) {
  HostTensor tensor;
  tensor.elementType = type.getElementType();
  tensor.shape.assign(type.getShape().begin(), type.getShape().end());
  if (tensor.isReal())
    tensor.reals.resize(type.getNumElements());
  else
    tensor.integers.resize(type.getNumElements());
  return tensor;
}

/// Copies little-endian elements of type T (`count` of them, or one for all when
/// `splat`).
template <class T, class Out>
static void readRaw(const char *bytes, bool splat, std::vector<Out> &out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + (splat ? 0 : i * sizeof(T)), sizeof(T));
    out[i] = static_cast<Out>(value);
  }
}

static void readHalf(const llvm::fltSemantics &semantics, const char *bytes, bool splat,
                     std::vector<double> &out) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + (splat ? 0 : i * 2), 2);
    APFloat value(semantics, APInt(16, bits));
    bool loses = false;
    value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
    out[i] = value.convertToDouble();
  }
}

/// Elements of byte size 1 to 8; false when the type is none of these.
static bool readElements(const char *bytes, bool splat, HostTensor &tensor) {
  Type type = tensor.elementType;
  if (type.isF32())
    readRaw<float>(bytes, splat, tensor.reals);
  else if (type.isF64())
    readRaw<double>(bytes, splat, tensor.reals);
  else if (type.isF16() || type.isBF16())
    readHalf(cast<FloatType>(type).getFloatSemantics(), bytes, splat, tensor.reals);
  else if (type.isInteger(8))
    readRaw<int8_t>(bytes, splat, tensor.integers);
  else if (type.isInteger(1))
    readRaw<uint8_t>(bytes, splat, tensor.integers);
  else if (type.isInteger(16))
    readRaw<int16_t>(bytes, splat, tensor.integers);
  else if (type.isInteger(32))
    readRaw<int32_t>(bytes, splat, tensor.integers);
  else if (type.isInteger(64))
    readRaw<int64_t>(bytes, splat, tensor.integers);
  else
    return false;
  return true;
}

FailureOr<HostTensor> HostTensor::fromAttribute(ElementsAttr attribute) {
  auto type = dyn_cast<RankedTensorType>(attribute.getShapedType());
  if (!type || !type.hasStaticShape())
    return failure();
  HostTensor tensor = zeros(type);
  if (tensor.size() == 0)
    return tensor;
  if (auto dense = dyn_cast<DenseElementsAttr>(attribute)) {
    if (tensor.elementType.isInteger(1)) { // packed as bits
      if (dense.isSplat())
        std::fill(tensor.integers.begin(), tensor.integers.end(),
                  dense.getSplatValue<bool>());
      else
        llvm::copy(dense.getValues<bool>(), tensor.integers.begin());
      return tensor;
    }
    if (readElements(dense.getRawData().data(), dense.isSplat(), tensor))
      return tensor;
    return failure();
  }
  auto resource = dyn_cast<DenseResourceElementsAttr>(attribute);
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  if (!blob)
    return failure();
  const int64_t width = std::max<int64_t>(8, tensor.elementType.getIntOrFloatBitWidth());
  if (static_cast<int64_t>(blob->getData().size()) != tensor.size() * (width / 8) ||
      !readElements(blob->getData().data(), /*splat=*/false, tensor))
    return failure();
  return tensor;
}

double toNarrow(double x, Type type) {
  if (!type.isBF16() && !type.isF16())
    return x;
  APFloat value(x);
  bool loses = false;
  value.convert(cast<FloatType>(type).getFloatSemantics(), APFloat::rmNearestTiesToEven,
                &loses);
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return value.convertToDouble();
}

// --- state

static FailureOr<HostTensor> initialValue(ParameterOp parameter) {
  if (!parameter.getInitAttr()) {
    HostTensor tensor = HostTensor::zeros(parameter.getTensorType());
    const double fill = parameter.getFill().convertToDouble();
    std::fill(tensor.reals.begin(), tensor.reals.end(), fill);
    std::fill(tensor.integers.begin(), tensor.integers.end(), static_cast<int64_t>(fill));
    return tensor;
  }
  FailureOr<HostTensor> tensor = HostTensor::fromAttribute(parameter.getInitAttr());
  if (failed(tensor))
    return parameter.emitOpError()
           << "'" << parameter.getSymName()
           << "' has an initial value that cannot be read (a resource without "
              "data, of another size, or of an unknown element type)";
  return tensor;
}

FailureOr<StateMap> initialState(ModuleOp module) {
  StateMap state;
  for (auto parameter : module.getOps<ParameterOp>()) {
    FailureOr<HostTensor> value = initialValue(parameter);
    if (failed(value))
      return failure();
    state[parameter.getSymName()] = std::move(*value);
  }
  return state;
}

// --- runs

namespace {
/// The values of one run. Tensors are dropped after their last use, so a step needs
/// little more than its peak.
class Run {
public:
  Run(StateMap &state, Precision precision) : state(state), precision(precision) {}

  LogicalResult bindInputs(func::FuncOp function, ArrayRef<HostTensor> inputs);
  LogicalResult runBlock(Block &block);
  /// From `next` on to the next collective, or to the terminator.
  FailureOr<Operation *> runToCollective(Operation *next);
  Evaluation open(Operation *op, SmallVectorImpl<const HostTensor *> &operands,
                  SmallVectorImpl<HostTensor> &results);
  void close(Operation *op, MutableArrayRef<HostTensor> results);
  void release(Operation *op);
  std::vector<HostTensor> take(OperandRange operands);
  void commit();

private:
  const HostTensor &get(Value value) { return values.find(value)->second; }
  void define(Value value, HostTensor tensor) {
    if (value.use_empty())
      return;
    uses[value] = std::distance(value.use_begin(), value.use_end());
    values[value] = std::move(tensor);
  }
  void roundAll(HostTensor &tensor);
  LogicalResult runOp(Operation *op);
  LogicalResult read(ReadOp op);
  LogicalResult runRegion(RegionOp op);
  LogicalResult evaluate(Evaluable op);

  StateMap &state;
  Precision precision;
  DenseMap<Value, HostTensor> values;
  DenseMap<Value, int64_t> uses;
  StateMap written;
};
} // namespace

void Run::roundAll(HostTensor &tensor) {
  if (precision == Precision::Single && !tensor.elementType.isF64())
    for (double &x : tensor.reals)
      x = static_cast<float>(x);
}

LogicalResult Run::bindInputs(func::FuncOp function, ArrayRef<HostTensor> inputs) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitOpError() << "has no single block, expected a graph function";
  if (function.getNumArguments() != inputs.size())
    return function.emitOpError() << "was given " << inputs.size() << " inputs, expected "
                                  << function.getNumArguments();
  for (auto [argument, input] : llvm::zip_equal(function.getArguments(), inputs)) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    const size_t stored = input.isReal() ? input.reals.size() : input.integers.size();
    if (!type || type.getElementType() != input.elementType ||
        type.getShape() != ArrayRef<int64_t>(input.shape) ||
        static_cast<int64_t>(stored) != input.size())
      return function.emitOpError()
             << "was given input " << argument.getArgNumber() << " of shape "
             << listText(input.shape) << " and element type " << input.elementType
             << ", expected " << argument.getType();
    HostTensor copy = input;
    roundAll(copy);
    define(argument, std::move(copy));
  }
  return success();
}

void Run::release(Operation *op) {
  for (Value operand : op->getOperands())
    if (--uses[operand] == 0)
      values.erase(operand);
}

LogicalResult Run::read(ReadOp op) {
  auto found = state.find(op.getSymbol());
  if (found == state.end())
    return op.emitOpError() << "reads '" << op.getSymbol()
                            << "', which the state given does not hold";
  auto type = cast<RankedTensorType>(op.getValue().getType());
  if (ArrayRef<int64_t>(found->second.shape) != type.getShape() ||
      found->second.elementType != type.getElementType())
    return op.emitOpError() << "reads '" << op.getSymbol() << "' of shape "
                            << listText(found->second.shape) << " and element type "
                            << found->second.elementType << ", expected " << type;
  HostTensor copy = found->second;
  roundAll(copy);
  define(op.getValue(), std::move(copy));
  return success();
}

LogicalResult Run::runRegion(RegionOp op) {
  Block &body = op.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), op.getInputs()))
    define(argument, get(input));
  if (failed(runBlock(body)))
    return failure();
  auto yield = cast<YieldOp>(body.getTerminator());
  std::vector<HostTensor> yielded = take(yield.getValues());
  for (auto [output, tensor] : llvm::zip_equal(op.getOutputs(), yielded))
    define(output, std::move(tensor));
  return success();
}

Evaluation Run::open(Operation *op, SmallVectorImpl<const HostTensor *> &operands,
                     SmallVectorImpl<HostTensor> &results) {
  for (Value operand : op->getOperands())
    operands.push_back(&get(operand));
  for (Type type : op->getResultTypes())
    results.push_back(HostTensor::zeros(cast<RankedTensorType>(type)));
  return Evaluation(op, operands, results, precision);
}

void Run::close(Operation *op, MutableArrayRef<HostTensor> results) {
  for (auto [value, tensor] : llvm::zip_equal(op->getResults(), results))
    define(value, std::move(tensor));
}

LogicalResult Run::evaluate(Evaluable op) {
  SmallVector<const HostTensor *> operands;
  SmallVector<HostTensor> results;
  Evaluation eval = open(op, operands, results);
  if (failed(op.evaluate(eval)))
    return failure();
  close(op, results);
  return success();
}

LogicalResult Run::runOp(Operation *op) {
  if (auto readOp = dyn_cast<ReadOp>(op))
    return read(readOp);
  if (auto write = dyn_cast<WriteOp>(op)) {
    written[write.getSymbol()] = get(write.getValue());
    return success();
  }
  if (auto region = dyn_cast<RegionOp>(op))
    return runRegion(region);
  if (auto evaluable = dyn_cast<Evaluable>(op))
    return evaluate(evaluable);
  return op->emitOpError()
         << "cannot be interpreted, expected operations of the graph dialect";
}

LogicalResult Run::runBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (failed(runOp(&op)))
      return failure();
    release(&op);
  }
  return success();
}

FailureOr<Operation *> Run::runToCollective(Operation *next) {
  for (; !next->hasTrait<OpTrait::IsTerminator>(); next = next->getNextNode()) {
    if (isa<Collective>(next))
      return next;
    if (failed(runOp(next)))
      return failure();
    release(next);
  }
  return next;
}

std::vector<HostTensor> Run::take(OperandRange operands) {
  std::vector<HostTensor> tensors;
  for (Value operand : operands)
    tensors.push_back(get(operand));
  for (Value operand : operands)
    if (--uses[operand] == 0)
      values.erase(operand);
  return tensors;
}

void Run::commit() {
  for (auto &entry : written)
    state[entry.getKey()] = std::move(entry.getValue());
}

FailureOr<std::vector<HostTensor>> interpret(func::FuncOp function,
                                             ArrayRef<HostTensor> inputs, StateMap &state,
                                             Precision precision) {
  Run run(state, precision);
  if (failed(run.bindInputs(function, inputs)) || failed(run.runBlock(function.front())))
    return failure();
  std::vector<HostTensor> results =
      run.take(function.front().getTerminator()->getOperands());
  run.commit();
  return results;
}

/// The collective that all ranks have come to.
static LogicalResult runTogether(MutableArrayRef<Run> runs, ArrayRef<Operation *> ops) {
  auto first = dyn_cast<Collective>(ops.front());
  std::vector<SmallVector<const HostTensor *>> operands(runs.size());
  std::vector<SmallVector<HostTensor>> results(runs.size());
  SmallVector<Evaluation> evaluations;
  for (size_t r = 0; r < runs.size(); ++r) {
    auto other = dyn_cast<Collective>(ops[r]);
    if (!first || !other || other->getName() != first->getName() ||
        other.collectiveName() != first.collectiveName() ||
        other->getOperandTypes() != first->getOperandTypes())
      return ops[r]->emitOpError("of rank ") << r << " is not what rank 0 has come to";
    evaluations.push_back(runs[r].open(ops[r], operands[r], results[r]));
  }
  if (failed(first.evaluateRanks(evaluations)))
    return failure();
  for (size_t r = 0; r < runs.size(); ++r) {
    runs[r].close(ops[r], results[r]);
    runs[r].release(ops[r]);
  }
  return success();
}

LogicalResult interpretRanks(MutableArrayRef<RankRun> ranks, Precision precision) {
  std::vector<Run> runs;
  SmallVector<Operation *> next;
  for (RankRun &rank : ranks) {
    runs.emplace_back(*rank.state, precision);
    if (failed(runs.back().bindInputs(rank.function, rank.inputs)))
      return failure();
    next.push_back(&rank.function.front().front());
  }
  for (bool done = false; !done;) {
    for (size_t r = 0; r < runs.size(); ++r) {
      FailureOr<Operation *> stop = runs[r].runToCollective(next[r]);
      if (failed(stop))
        return failure();
      next[r] = *stop;
    }
    done = llvm::all_of(next, [](Operation *op) { return !isa<Collective>(op); });
    if (!done && failed(runTogether(runs, next)))
      return failure();
    for (Operation *&op : next)
      op = done ? op : op->getNextNode();
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    ranks[r].results = runs[r].take(next[r]->getOperands());
    runs[r].commit();
  }
  return success();
}

} // namespace sluice::graph
