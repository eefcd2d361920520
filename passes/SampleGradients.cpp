#include "passes/SampleGradients.h"

#include "ir/graph/GraphBuilder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;
using graph::tensorType;

/// Slices that are worth it: with more, compiling takes longer than single samples do.
static constexpr size_t maxSlices = 4096;

static bool isReal(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

SampleGradients::SampleGradients(func::FuncOp entry, int64_t batch)
    : entry(entry), batch(batch), axes(entry, batch),
      builder(entry.getBody().front().getTerminator()) {
  for (Operation &op : entry.getBody().front().without_terminator())
    forward.push_back(&op);
  findActive();
}

LogicalResult SampleGradients::refuse(Operation *op, const char *why) {
  std::string node = "unnamed";
  if (auto named = op->getLoc()->findInstanceOf<NameLoc>())
    node = named.getName().str();
  reason = why + std::string(" ('") + op->getName().stripDialect().str() + "', node '" +
           node + "')";
  return failure();
}

/// Only where samples lie one behind the other along one dimension.
std::optional<SampleGradients::Place> SampleGradients::placeOf(Value value) const {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  int64_t stride = axes.of(value).stride, step = 1;
  for (int64_t d = shape.size(); d-- > 0; step *= shape[d])
    if (step <= stride && stride % step == 0 && shape[d] * step == stride * batch)
      return Place{d, stride / step};
  return std::nullopt;
}

void SampleGradients::findActive() {
  for (Operation *op : forward) {
    bool depends = llvm::any_of(op->getOperands(), [&](Value v) { return isActive(v); });
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      auto parameter = SymbolTable::lookupNearestSymbolFrom<graph::ParameterOp>(
          read, read.getSymbolAttr());
      depends = parameter && parameter.getTrainable();
    }
    for (Value result : op->getResults())
      if (depends && isReal(result))
        active.insert(result);
  }
}

void SampleGradients::accumulate(DenseMap<Value, Value> &into, Value value, Value part) {
  Value &sum = into[value];
  sum = sum ? builder.create<graph::AddOp>(part.getLoc(), sum, part).getResult() : part;
}

LogicalResult SampleGradients::gradientOf(Operation *op, Value cotangent,
                                          ArrayRef<bool> needed,
                                          SmallVectorImpl<Value> &gradients) {
  auto differentiable = dyn_cast<graph::Differentiable>(op);
  if (!differentiable)
    return refuse(op, "an operation has no gradient");
  Value cotangents[] = {cotangent};
  graph::GradientContext context(cotangents, needed);
  if (failed(differentiable.buildGradient(builder, context)))
    return refuse(op, "an operation has no gradient");
  gradients.assign(context.gradients().begin(), context.gradients().end());
  return success();
}

/// Sums over samples, and what is linear in them: each sample keeps its own cotangent.
bool SampleGradients::isSum(Operation *op) const {
  auto isConstant = [&](Value value) {
    return axes.of(value).kind == SampleAxis::None && !isActive(value);
  };
  if (auto reduce = dyn_cast<graph::ReduceOp>(op))
    return reduce.getKind() == "sum";
  if (isa<graph::MulOp>(op))
    return isConstant(op->getOperand(0)) || isConstant(op->getOperand(1));
  if (isa<graph::DivOp>(op))
    return isConstant(op->getOperand(1));
  return isa<graph::ReshapeOp, graph::CastOp, graph::AddOp, graph::SubOp, graph::NegOp>(
      op);
}

LogicalResult SampleGradients::propagate(Operation *op) {
  if (op->getNumResults() != 1 || !cotangents.lookup(op->getResult(0)))
    return success();
  Value result = op->getResult(0);
  SampleAxis::Kind kind = axes.of(result).kind;
  if (kind == SampleAxis::None)
    return success(); // parameters alone: taken apart by sample
  if (kind == SampleAxis::Unknown || (kind == SampleAxis::Mixed && !isSum(op)))
    return refuse(op, "an operation mixes samples");
  SmallVector<bool> needed;
  for (OpOperand &operand : op->getOpOperands()) {
    bool isOfParameters =
        isActive(operand.get()) && axes.of(operand.get()).kind == SampleAxis::None;
    if (isOfParameters && kind == SampleAxis::Mixed)
      return refuse(op, "a parameter meets the loss beside the samples");
    if (isOfParameters)
      boundaries.push_back({op, operand.getOperandNumber(), cotangents[result]});
    needed.push_back(isActive(operand.get()) && !isOfParameters);
  }
  if (llvm::none_of(needed, [](bool n) { return n; }))
    return success();
  SmallVector<Value> gradients;
  if (failed(gradientOf(op, cotangents[result], needed, gradients)))
    return failure();
  for (auto [operand, gradient] : llvm::zip_equal(op->getOperands(), gradients))
    if (gradient)
      accumulate(cotangents, operand, gradient);
  return success();
}

LogicalResult SampleGradients::run(Value loss, Value cotangent) {
  GraphBuilder b(loss.getLoc(), builder);
  if (!isActive(loss))
    return success();
  cotangents[loss] = cotangent ? cotangent : b.splatLike(loss, 1);
  for (Operation *op : llvm::reverse(forward))
    if (failed(propagate(op)))
      return failure();
  sortBoundaries();
  if (unrolled.size() * static_cast<size_t>(batch) > maxSlices) {
    reason =
        "there would be more than " + std::to_string(maxSlices) + " gradients of slices";
    return failure();
  }
  for (int64_t sample = 0; sample < batch && !unrolled.empty(); ++sample)
    if (failed(addSample(sample)))
      return failure();
  return success();
}

SampleGradients::Chain SampleGradients::chainOf(const Boundary &boundary) const {
  Chain chain;
  Value value = boundary.op->getOperand(boundary.operand);
  while (Operation *op = value.getDefiningOp()) {
    if ((chain.read = dyn_cast<graph::ReadOp>(op)))
      break;
    if (!isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp>(op))
      break;
    chain.views.push_back(op);
    value = op->getOperand(0);
  }
  return chain;
}

/// Squares of parameters that are used once, in a simple way; leaves the others.
void SampleGradients::sortBoundaries() {
  // Every parameter from which a boundary is reached, and how often.
  DenseMap<Value, SmallVector<StringRef>> reached;
  for (Operation *op : forward) {
    if (op->getNumResults() != 1 || !isActive(op->getResult(0)))
      continue;
    SmallVector<StringRef> &symbols = reached[op->getResult(0)];
    if (auto read = dyn_cast<graph::ReadOp>(op))
      symbols.push_back(read.getSymbol());
    else if (axes.of(op->getResult(0)).kind == SampleAxis::None)
      for (Value operand : op->getOperands())
        llvm::append_range(symbols, SmallVector<StringRef>(reached.lookup(operand)));
  }
  llvm::DenseMap<StringRef, int> uses;
  for (const Boundary &boundary : boundaries)
    for (StringRef symbol : reached.lookup(boundary.op->getOperand(boundary.operand)))
      ++uses[symbol];
  for (const Boundary &boundary : boundaries) {
    Chain chain = chainOf(boundary);
    if (chain.read && uses.lookup(chain.read.getSymbol()) == 1)
      if (Value square = squaresOfRows(boundary, chain)) {
        sums[chain.read.getSymbol()] = square;
        continue;
      }
    unrolled.push_back(boundary);
    for (StringRef symbol : reached.lookup(boundary.op->getOperand(boundary.operand)))
      oneByOne.insert(symbol);
  }
}

Value SampleGradients::squaresOfRows(const Boundary &boundary, const Chain &chain) {
  bool repeats = llvm::any_of(chain.views,
                              [](Operation *op) { return isa<graph::BroadcastOp>(op); });
  if (!repeats)
    return squaresOfProduct(boundary, chain);
  return isa<graph::Elementwise>(boundary.op) ? squaresOfRepeated(boundary, chain)
                                              : Value();
}

/// Undoes reshapes and transposes.
Value SampleGradients::backThrough(ArrayRef<Operation *> views, Value value) {
  for (Operation *view : views) {
    SmallVector<Value> gradients;
    if (failed(gradientOf(view, value, {true}, gradients)))
      return {};
    value = gradients[0];
  }
  return value;
}

Value SampleGradients::squaresOfProduct(const Boundary &boundary, const Chain &chain) {
  auto contract = dyn_cast<graph::ContractOp>(boundary.op);
  if (!contract)
    return {};
  bool isLeft = boundary.operand == 0;
  Value x = isLeft ? contract.getRhs() : contract.getLhs();
  auto paired = isLeft ? contract.getRhsBatch() : contract.getLhsBatch();
  auto summed = isLeft ? contract.getRhsContract() : contract.getLhsContract();
  auto place = placeOf(x);
  // Beside the samples no dimension of x is free: each sample has one outer product.
  if (!place || place->rows != 1 || !paired.empty() ||
      tensorType(x).getRank() != static_cast<int64_t>(summed.size()) + 1 ||
      llvm::is_contained(summed, place->dimension))
    return {};
  GraphBuilder b(contract.getLoc(), builder);
  Operation *squared = builder.clone(*contract);
  squared->setOperand(1 - boundary.operand, b.square(x));
  SmallVector<Value> gradients;
  SmallVector<bool> needed = {isLeft, !isLeft};
  if (failed(gradientOf(squared, b.square(boundary.cotangent), needed, gradients)))
    return {};
  return backThrough(chain.views, gradients[boundary.operand]);
}

Value SampleGradients::squaresOfRepeated(const Boundary &boundary, const Chain &chain) {
  auto repeat = dyn_cast<graph::BroadcastOp>(chain.views.front());
  auto rest = ArrayRef(chain.views).drop_front();
  bool more =
      llvm::any_of(rest, [](Operation *op) { return isa<graph::BroadcastOp>(op); });
  auto place = placeOf(boundary.op->getResult(0));
  if (!repeat || more || !place || place->dimension != 0)
    return {};
  ArrayRef<int64_t> small = tensorType(repeat.getX()).getShape();
  SmallVector<int64_t> whole(tensorType(repeat).getShape());
  SmallVector<int64_t> aligned(whole.size() - small.size(), 1);
  llvm::append_range(aligned, small);
  if (aligned[0] != 1)
    return {};
  SmallVector<bool> needed(boundary.op->getNumOperands(), false);
  needed[boundary.operand] = true;
  SmallVector<Value> gradients;
  if (failed(gradientOf(boundary.op, boundary.cotangent, needed, gradients)))
    return {};
  // [samples, rows, ...]: summed where the vector is repeated, but over samples.
  GraphBuilder b(boundary.op->getLoc(), builder);
  SmallVector<int64_t> split = {batch, place->rows}, repeated;
  llvm::append_range(split, ArrayRef(whole).drop_front());
  for (auto [d, size] : llvm::enumerate(aligned))
    if (size == 1)
      repeated.push_back(static_cast<int64_t>(d) + 1);
  Value ofSamples = b.reshape(gradients[boundary.operand], split);
  ofSamples = b.sum(ofSamples, repeated, /*keep=*/false);
  Value sum = b.sum(b.square(ofSamples), {0}, /*keep=*/false);
  return backThrough(rest, b.reshape(sum, small));
}

Value SampleGradients::slice(Value value, Place place, int64_t sample) {
  SmallVector<int64_t> sizes(tensorType(value).getShape());
  SmallVector<int64_t> starts(sizes.size(), 0), steps(sizes.size(), 1);
  starts[place.dimension] = sample * place.rows;
  sizes[place.dimension] = place.rows;
  return builder.create<graph::SliceOp>(value.getLoc(), value, starts, sizes, steps);
}

/// The cotangent of the operand from one sample.
LogicalResult SampleGradients::addPart(const Boundary &boundary, int64_t sample,
                                       DenseMap<Value, Value> &into) {
  Operation *op = boundary.op;
  bool sharesPlace = isa<graph::Elementwise, graph::ConcatOp>(op);
  if (!sharesPlace && !isa<graph::ContractOp, graph::ConvOp, graph::GatherOp>(op))
    return refuse(op, "a parameter meets samples in an operation that is not cut");
  auto ofResult = placeOf(op->getResult(0));
  if (!ofResult)
    return refuse(op, "samples do not lie one behind the other");
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    auto place = sharesPlace           ? ofResult
                 : hasSamples(operand) ? placeOf(operand)
                                       : std::optional<Place>(Place{-1, 0});
    if (!place)
      return refuse(op, "samples do not lie one behind the other");
    operands.push_back(place->dimension < 0 ? operand : slice(operand, *place, sample));
  }
  Operation *part = builder.clone(*op);
  part->setOperands(operands);
  SmallVector<Type> types;
  if (failed(cast<InferTypeOpInterface>(part).inferReturnTypes(
          op->getContext(), op->getLoc(), operands, part->getAttrDictionary(),
          part->getPropertiesStorage(), part->getRegions(), types)))
    return refuse(op, "a sample's slice has no type");
  part->getResult(0).setType(types[0]);
  SmallVector<bool> needed(op->getNumOperands(), false);
  needed[boundary.operand] = true;
  SmallVector<Value> gradients;
  if (failed(gradientOf(part, slice(boundary.cotangent, *ofResult, sample), needed,
                        gradients)))
    return failure();
  Value gradient = gradients[boundary.operand],
        operand = op->getOperand(boundary.operand);
  if (!sharesPlace) {
    accumulate(into, operand, gradient);
    return success();
  }
  GraphBuilder b(op->getLoc(), builder);
  auto repeat = operand.getDefiningOp<graph::BroadcastOp>();
  int64_t rank = tensorType(operand).getRank();
  int64_t inner = repeat ? tensorType(repeat.getX()).getRank() : 0;
  int64_t own = ofResult->dimension - (rank - inner);
  // What is repeated along the samples: each slice is the whole of it.
  if (repeat && (own < 0 || tensorType(repeat.getX()).getDimSize(own) == 1)) {
    accumulate(into, repeat.getX(),
               b.sumTo(gradient, tensorType(repeat.getX()).getShape()));
    return success();
  }
  SmallVector<int64_t> low(rank, 0), high(rank, 0);
  low[ofResult->dimension] = sample * ofResult->rows;
  high[ofResult->dimension] =
      tensorType(operand).getDimSize(ofResult->dimension) - (sample + 1) * ofResult->rows;
  accumulate(into, operand,
             b.make<graph::PadOp>(gradient, ArrayRef<int64_t>(low),
                                  ArrayRef<int64_t>(high), APFloat(0.0)));
  return success();
}

LogicalResult SampleGradients::addSample(int64_t sample) {
  DenseMap<Value, Value> parts;
  for (const Boundary &boundary : unrolled)
    if (failed(addPart(boundary, sample, parts)))
      return failure();
  llvm::MapVector<StringRef, Value> gradients;
  for (Operation *op : llvm::reverse(forward)) {
    Value part = op->getNumResults() == 1 ? parts.lookup(op->getResult(0)) : Value();
    if (!part || axes.of(op->getResult(0)).kind != SampleAxis::None)
      continue;
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      Value &sum = gradients[read.getSymbol()];
      sum =
          sum ? builder.create<graph::AddOp>(op->getLoc(), sum, part).getResult() : part;
      continue;
    }
    SmallVector<bool> needed;
    for (Value operand : op->getOperands())
      needed.push_back(isActive(operand));
    SmallVector<Value> given;
    if (failed(gradientOf(op, part, needed, given)))
      return failure();
    for (auto [operand, gradient] : llvm::zip_equal(op->getOperands(), given))
      if (gradient)
        accumulate(parts, operand, gradient);
  }
  for (auto &[symbol, gradient] : gradients) {
    if (!oneByOne.contains(symbol))
      continue;
    GraphBuilder b(gradient.getLoc(), builder);
    Value &sum = sums[symbol];
    sum = sum ? b.add(sum, b.square(gradient)) : b.square(gradient);
  }
  return success();
}

} // namespace sluice
