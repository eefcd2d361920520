#include "codegen/ValueEmitter.h"

#include "codegen/RandomLanes.h"
#include "passes/RegionAxes.h"
#include "passes/RegionSchedule.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace sluice;

ValueEmitter::ValueEmitter(LaneBuilder &lanes, const RegionDomain &domain,
                           ArrayRef<Operation *> ops, ArrayRef<Value> buffers)
    : lanes(lanes), b(lanes.b), domain(domain), ops(ops), buffers(buffers) {
  for (auto [i, input] : llvm::enumerate(domain.inputs))
    inputNumber[input] = i;
  for (Operation *op : ops) {
    for (OpOperand &use : op->getOpOperands())
      if (auto leaf = domain.leaves.find(&use);
          leaf != domain.leaves.end() && !leaf->second.window.isPiece) {
        accesses.insert({leaf->second.shape, leaf->second.window});
        accesses.insert(leaf->second.support);
      }
    Value result = op->getResult(0);
    const RegionValue &place = domain.values.find(result)->second;
    DimMask shape = place.shape, sample = domain.samples.lookup(result);
    accesses.insert(shape);
    accesses.insert(place.support); // an iota counts along this
    accesses.insert(shape & ~sample);
    accesses.insert(sample);
  }
}

void ValueEmitter::enterKernel() {
  for (Operation *op : ops) {
    for (OpOperand &use : op->getOpOperands())
      if (auto leaf = domain.leaves.find(&use);
          leaf != domain.leaves.end() && leaf->second.support == 0)
        operand(use, kernelPoint);
    const RegionValue &value = domain.values.find(op->getResult(0))->second;
    if (!value.inner && value.support == 0 && value.pass < 0)
      kernelPoint.values[op->getResult(0)] = emit(op, value.support, kernelPoint);
  }
}

void ValueEmitter::shiftInput(unsigned number, Value elements) {
  shifts[number] = elements;
}

void ValueEmitter::enterUnit(Value unit, ArrayRef<Value> stripColumns,
                             ArrayRef<int64_t> stripLanes) {
  this->unit = unit;
  unitBases.clear();
  unitPoints.clear();
  for (const Access &access : accesses)
    unitBases[access] = emitUnitBase(access);
  choosePieces();
  for (auto [i, column] : llvm::enumerate(stripColumns)) {
    Point &point = unitPoints.emplace_back();
    point.column = column;
    point.lanes = stripLanes[i];
    point.vector = static_cast<int>(i);
  }
  finishPass(-1);
}

void ValueEmitter::finishPass(int pass) {
  for (Operation *op : ops) {
    Value result = op->getResult(0);
    const RegionValue &value = domain.values.find(result)->second;
    if (value.inner || value.pass != pass || kernelPoint.values.contains(result))
      continue;
    for (Point &point : unitPoints)
      if (!point.values.contains(result))
        point.values[result] = emit(op, value.support, point);
  }
}

void ValueEmitter::setReduced(Value result, ArrayRef<Value> vectors) {
  for (auto [point, vector] : llvm::zip_equal(unitPoints, vectors))
    point.values[result] = vector;
}

Value ValueEmitter::value(Value v, Point &point) {
  const RegionValue &place = domain.values.find(v)->second;
  if (!place.inner) {
    if (auto found = kernelPoint.values.find(v); found != kernelPoint.values.end())
      return found->second;
    return unitPoints[point.vector].values.find(v)->second;
  }
  if (auto found = point.values.find(v); found != point.values.end())
    return found->second;
  auto kept = domain.kept.find(v);
  bool isKept = kept != domain.kept.end() && kept->second.pass < currentPass;
  Value result = isKept ? loadKept(v, kept->second, point)
                        : emit(v.getDefiningOp(), place.support, point);
  point.values[v] = result;
  return result;
}

Value ValueEmitter::operand(OpOperand &use, Point &point) {
  auto leaf = domain.leaves.find(&use);
  if (leaf == domain.leaves.end())
    return value(use.get(), point);
  if (auto number = inputNumber.find(use.get()); number != inputNumber.end())
    return loadLeaf(use.get(), leaf->second, point);
  return emit(use.get().getDefiningOp(), leaf->second.support, point);
}

/// Null for all lanes.
Value ValueEmitter::maskOf(const Point &point) {
  if (point.mask || point.lanes == lanes.width)
    return point.mask;
  return lanes.mask(point.lanes);
}

Value ValueEmitter::loadLeaf(Value input, const RegionValue &leaf, Point &point) {
  unsigned number = inputNumber.find(input)->second;
  std::tuple key{number, leaf.shape, leaf.window};
  if (auto found = kernelPoint.loads.find(key); found != kernelPoint.loads.end())
    return found->second;
  bool inner = leaf.shape & domain.innerDims();
  if (!inner && leaf.shape != 0) {
    auto &cache = unitPoints[point.vector].loads;
    if (auto found = cache.find(key); found != cache.end())
      return found->second;
  }
  if (auto found = point.loads.find(key); found != point.loads.end())
    return found->second;
  Value index = elementIndex({leaf.shape, leaf.window}, point);
  if (Value shift = shifts.lookup(number))
    index = b.create<arith::AddIOp>(index, shift);
  Value address =
      lanes.address(buffers[number], index, graph::tensorType(input).getElementType());
  int64_t alignment = shifts.contains(number)
                          ? 0
                          : alignmentOf({leaf.shape, leaf.window},
                                        graph::tensorType(input).getElementType());
  Value loaded = loadElements(address, input, leaf.shape, point, alignment);
  point.loads[key] = loaded;
  return loaded;
}

/// Elements of a tensor like `v`: a vector of them, or one for all lanes.
Value ValueEmitter::loadElements(Value address, Value v, DimMask shape,
                                 const Point &point, int64_t alignment) {
  Type element = graph::tensorType(v).getElementType();
  return shape & domain.lastDim() ? lanes.load(address, element, maskOf(point), alignment)
                                  : lanes.loadSplat(address, element);
}

/// Of a vector of the tensor in bytes, if all its vectors start at multiples of their
/// length; else 0.
int64_t ValueEmitter::alignmentOf(const Access &access, Type element) const {
  if (!aligned || !(access.mask & domain.lastDim()))
    return 0;
  bool whole = windowStart(access) % lanes.width == 0;
  for (unsigned dim = 0; dim + 1 < domain.dims.size(); ++dim)
    if (access.mask >> dim & 1)
      whole &= stride(access, dim) % lanes.width == 0;
  return whole ? std::min<int64_t>(16, lanes.width * LaneBuilder::elementBytes(element))
               : 0;
}

Value ValueEmitter::emit(Operation *op, DimMask support, Point &point) {
  if (isa<graph::ConcatOp>(op))
    return loadJoined(op, point);
  if (isa<graph::BroadcastOp, graph::ReshapeOp, graph::ReduceOp, graph::SliceOp>(op))
    return operand(op->getOpOperand(0), point);
  if (auto constant = dyn_cast<graph::ConstantOp>(op)) {
    auto splat = cast<DenseElementsAttr>(constant.getValue());
    return lanes.splat(cast<TypedAttr>(splat.getSplatValue<Attribute>()),
                       splat.getElementType());
  }
  if (isa<graph::IotaOp>(op)) {
    Value index = elementIndex(support, point);
    return support & domain.lastDim() ? lanes.sequence(index) : lanes.broadcast(index);
  }
  if (isa<graph::RandomUniformOp>(op))
    return emitRandom(op, point);
  SmallVector<Value> operands;
  for (OpOperand &use : op->getOpOperands())
    operands.push_back(operand(use, point));
  return cast<graph::Elementwise>(op).emitVector(b, operands);
}

Value ValueEmitter::emitRandom(Operation *op, Point &point) {
  auto scalar = [&](unsigned i) -> Value {
    return b.create<vector::ExtractOp>(operand(op->getOpOperand(i), point), int64_t{0});
  };
  auto random = cast<graph::RandomUniformOp>(op);
  Value result = random.getY();
  RandomKeyScalars key{scalar(0), scalar(1), static_cast<int64_t>(random.getId())};
  DimMask sampleDims = domain.samples.find(result)->second;
  DimMask elementDims = domain.values.find(result)->second.shape & ~sampleDims;
  // Rank 1 and batched: the samples run along the vector, each has one element.
  Value sample = random.getBatched() ? scalar(2) : lanes.constant(0);
  sample = b.create<arith::AddIOp>(sample, elementIndex(sampleDims, point));
  Value element = elementIndex(elementDims, point);

  DimMask last = domain.lastDim();
  bool fours = (elementDims & last) && lanes.width % 4 == 0;
  for (unsigned dim = 0; dim + 1 < domain.dims.size(); ++dim)
    if (elementDims >> dim & 1)
      fours &= stride(elementDims, dim) % 4 == 0;
  if (fours)
    return emitRandomRun(lanes, key, sample, element);
  auto spread = [&](Value index, DimMask dims) {
    return dims & last ? lanes.sequence(index) : lanes.broadcast(index);
  };
  return emitRandomLanes(lanes, key, spread(sample, sampleDims),
                         spread(element, elementDims));
}

int64_t ValueEmitter::stride(const Access &access, unsigned dim) const {
  int64_t product = 1;
  for (unsigned d = dim + 1; d < domain.dims.size(); ++d)
    if (access.mask >> d & 1)
      product *= static_cast<int>(d) == access.window.dim ? access.window.extent
                                                          : domain.dims[d];
  return product;
}

// Index along a dimension that the unit fixes, from the unit's number.
Value ValueEmitter::unitIndex(unsigned dim) {
  int64_t inner = 1;
  if (domain.kind == WalkKind::Columns)
    inner = llvm::divideCeil(domain.columns(), RegionDomain::stripColumns);
  for (unsigned d : domain.unitDims)
    if (d > dim)
      inner *= domain.dims[d];
  Value index = inner == 1 ? unit : b.create<arith::DivUIOp>(unit, lanes.constant(inner));
  if (dim == domain.unitDims.front())
    return index;
  return b.create<arith::RemUIOp>(index, lanes.constant(domain.dims[dim]));
}

int64_t ValueEmitter::windowStart(const Access &access) const {
  const DimWindow &window = access.window;
  return window.dim < 0 ? 0 : window.start * stride(access, window.dim);
}

// What the unit contributes to the element index of a tensor with these dimensions, and
// where its window starts.
Value ValueEmitter::emitUnitBase(const Access &access) {
  int64_t start = windowStart(access);
  auto shifted = [&](Value base) -> Value {
    return start == 0 ? base : b.create<arith::AddIOp>(base, lanes.constant(start));
  };
  // All unit dimensions, one after the other: no need to take the unit's number apart.
  bool whole = domain.kind != WalkKind::Columns && !domain.unitDims.empty();
  int64_t expected = -1;
  for (unsigned dim : llvm::reverse(domain.unitDims)) {
    int64_t step = stride(access, dim);
    whole &= (access.mask >> dim & 1) && (expected < 0 || step == expected);
    expected = step * domain.dims[dim];
  }
  if (whole)
    return shifted(b.create<arith::MulIOp>(
        unit, lanes.constant(stride(access, domain.unitDims.back()))));
  Value base = lanes.constant(0);
  for (unsigned dim : domain.unitDims)
    if (access.mask >> dim & 1)
      base = b.create<arith::AddIOp>(
          base,
          b.create<arith::MulIOp>(unitIndex(dim), lanes.constant(stride(access, dim))));
  return shifted(base);
}

Value ValueEmitter::elementIndex(const Access &access, Point &point) {
  auto base = unitBases.find(access);
  Value index =
      base != unitBases.end() ? base->second : lanes.constant(windowStart(access));
  if (domain.rowDim >= 0 && (access.mask >> domain.rowDim & 1)) {
    Value step = lanes.constant(stride(access, domain.rowDim));
    index = b.create<arith::AddIOp>(index, b.create<arith::MulIOp>(point.row, step));
  }
  if (access.mask & domain.lastDim())
    index = b.create<arith::AddIOp>(index, point.column);
  return index;
}

// A row of the scratch starts at a multiple of 16 elements, so whole vectors fit.
Value ValueEmitter::scratchAddress(int slot, Point &point) {
  bool strips = domain.kind == WalkKind::Columns;
  int64_t rowElements = strips ? RegionDomain::stripColumns
                               : llvm::alignTo(domain.columns(), LaneBuilder::lanes);
  Value index = !strips       ? point.column
                : stripOffset ? stripOffset
                              : lanes.constant(point.vector * LaneBuilder::lanes);
  if (domain.rowDim >= 0)
    index = b.create<arith::AddIOp>(
        index, b.create<arith::MulIOp>(point.row, lanes.constant(rowElements)));
  index = b.create<arith::AddIOp>(index, lanes.constant(slot * (domain.slotBytes / 4)));
  return lanes.address(buffers.back(), index, b.getF32Type());
}

Value ValueEmitter::outputAddress(size_t output, Point &point) {
  Value v = domain.outputs[output];
  return lanes.address(buffers[domain.inputs.size() + output],
                       elementIndex(domain.values.find(v)->second.shape, point),
                       graph::tensorType(v).getElementType());
}

Value ValueEmitter::loadKept(Value v, const KeptValue &kept, Point &point) {
  if (kept.slot >= 0)
    return lanes.load(scratchAddress(kept.slot, point), b.getF32Type());
  size_t output = llvm::find(domain.outputs, v) - domain.outputs.begin();
  return lanes.load(outputAddress(output, point), graph::tensorType(v).getElementType(),
                    maskOf(point));
}

void ValueEmitter::storeOutput(size_t output, Value vector, Point &point) {
  Value v = domain.outputs[output];
  Type element = graph::tensorType(v).getElementType();
  Value address = outputAddress(output, point);
  if (domain.values.find(v)->second.shape & domain.lastDim())
    lanes.store(vector, address, element, maskOf(point),
                alignmentOf(domain.values.find(v)->second.shape, element));
  else
    lanes.storeScalar(vector, address, element);
}

void ValueEmitter::store(ArrayRef<Value> values, Point &point) {
  SmallVector<std::pair<Value, int>> keep; // in block order: the same code every time
  for (Operation *op : ops) {
    auto kept = domain.kept.find(op->getResult(0));
    if (kept != domain.kept.end() && kept->second.slot >= 0 &&
        kept->second.pass == currentPass)
      keep.push_back({value(op->getResult(0), point), kept->second.slot});
  }
  SmallVector<Value> vectors;
  for (Value v : values)
    vectors.push_back(value(v, point));
  for (auto [vector, slot] : keep)
    lanes.store(vector, scratchAddress(slot, point), b.getF32Type());
  for (auto [v, vector] : llvm::zip_equal(values, vectors))
    for (auto [i, output] : llvm::enumerate(domain.outputs))
      if (output == v)
        storeOutput(i, vector, point);
}

void ValueEmitter::storeUnitOutputs() {
  for (Point &point : unitPoints)
    for (auto [i, output] : llvm::enumerate(domain.outputs))
      if (!(domain.values.find(output)->second.shape & domain.innerDims()))
        storeOutput(i, value(output, point), point);
}

void ValueEmitter::prefetch(Point &point, int64_t distance) {
  llvm::SmallDenseSet<Value> done;
  for (Operation *op : ops)
    for (OpOperand &use : op->getOpOperands()) {
      auto leaf = domain.leaves.find(&use);
      auto number = inputNumber.find(use.get());
      if (leaf == domain.leaves.end() || number == inputNumber.end() ||
          leaf->second.shape != domain.allDims() || leaf->second.window.isPiece ||
          !done.insert(use.get()).second)
        continue;
      Type element = graph::tensorType(use.get()).getElementType();
      Value ahead = b.create<arith::AddIOp>(
          elementIndex({leaf->second.shape, leaf->second.window}, point),
          lanes.constant(distance));
      lanes.prefetch(lanes.address(buffers[number->second], ahead, element));
    }
}
