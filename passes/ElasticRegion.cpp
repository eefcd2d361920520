#include "passes/ElasticRegion.h"

#include "ir/plan/Plan.h"
#include "passes/RegionDomain.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr StringLiteral elasticKernel = "elastic";
/// Elements of the types in an elastic region: one unit, any other number would do.
constexpr int64_t anyLength = RegionDomain::flatUnit;

/// One for each element, or the same for all of them.
enum class Extent { Full, Single, Other };

Extent extentOf(Value value, int64_t elements) {
  auto type = graph::tensorType(value);
  // Of a single element only the rank tells whether it is the tensor's.
  if (type.getNumElements() == elements && (elements != 1 || type.getRank() > 0))
    return Extent::Full;
  return type.getNumElements() == 1 ? Extent::Single : Extent::Other;
}

bool isView(Operation *op) { return isa<graph::BroadcastOp, graph::ReshapeOp>(op); }

class FormBuilder {
public:
  FormBuilder(graph::RegionOp region, int64_t elements, Block &block)
      : region(region), builder(region.getContext()), block(block) {
    form.elements = elements;
  }

  ElasticForm build(ArrayRef<unsigned> outputs) {
    Operation *yield = region.getBody().front().getTerminator();
    Block body;
    inside = &body;
    SmallVector<Value> results;
    SmallVector<Type> types;
    for (unsigned output : outputs) {
      results.push_back(valueOf(yield->getOperand(output)));
      types.push_back(results.back().getType());
      form.outputs.push_back(output);
    }
    builder.setInsertionPointToEnd(&block);
    auto made = builder.create<graph::RegionOp>(region.getLoc(), types,
                                                ValueRange(block.getArguments()),
                                                builder.getStringAttr(elasticKernel));
    Block &home = made.getBody().emplaceBlock();
    for (BlockArgument argument : block.getArguments())
      argument.replaceUsesWithIf(home.addArgument(argument.getType(), argument.getLoc()),
                                 [&](OpOperand &use) { return use.getOwner() != made; });
    home.getOperations().splice(home.end(), body.getOperations());
    // An output may be handed on from an input only in form: analysis refuses it.
    builder.setInsertionPointToEnd(&home);
    builder.create<graph::YieldOp>(region.getLoc(), results);
    return std::move(form);
  }

private:
  RankedTensorType typeOf(Value value) const {
    Type element = graph::tensorType(value).getElementType();
    if (extentOf(value, form.elements) == Extent::Full)
      return RankedTensorType::get({anyLength}, element);
    return RankedTensorType::get({}, element);
  }

  Value valueOf(Value old) {
    if (Value known = mapping.lookupOrNull(old))
      return known;
    Operation *op = old.getDefiningOp();
    Value made = op ? resultOf(op) : argumentFor(cast<BlockArgument>(old));
    mapping.map(old, made);
    return made;
  }

  Value argumentFor(BlockArgument input) {
    form.inputs.push_back(input.getArgNumber());
    return block.addArgument(typeOf(input), region.getLoc());
  }

  Value resultOf(Operation *op) {
    Value result = op->getResult(0);
    if (auto constant = dyn_cast<graph::ConstantOp>(op)) {
      auto value = cast<DenseElementsAttr>(constant.getValue());
      builder.setInsertionPointToEnd(inside);
      return unique(builder.create<graph::ConstantOp>(region.getLoc(),
                                                      value.resizeSplat(typeOf(result))));
    }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(valueOf(operand));
    builder.setInsertionPointToEnd(inside);
    if (!isView(op)) {
      Operation *clone = builder.clone(*op);
      clone->setLoc(region.getLoc());
      clone->setDiscardableAttrs(ArrayRef<NamedAttribute>());
      clone->setOperands(operands);
      clone->getResult(0).setType(typeOf(result));
      return unique(clone);
    }
    if (operands[0].getType() == typeOf(result))
      return operands[0];
    return unique(
        builder.create<graph::BroadcastOp>(region.getLoc(), typeOf(result), operands[0],
                                           builder.getDenseI64ArrayAttr({anyLength})));
  }

  /// What was computed before is not computed again: regions differ in what they repeat.
  Value unique(Operation *made) {
    for (Operation &other : *inside)
      if (&other != made && OperationEquivalence::isEquivalentTo(
                                &other, made, OperationEquivalence::IgnoreLocations)) {
        made->erase();
        return other.getResult(0);
      }
    return made->getResult(0);
  }

  graph::RegionOp region;
  OpBuilder builder;
  Block &block;
  Block *inside = nullptr; // where the body is built
  IRMapping mapping;
  ElasticForm form;
};

} // namespace

std::optional<int64_t> elasticElements(graph::RegionOp region) {
  Block &body = region.getBody().front();
  int64_t elements = graph::tensorType(region.getResult(0)).getNumElements();
  auto is = [&](Value value, Extent extent) {
    return extentOf(value, elements) == extent;
  };
  for (Value output : region.getResults())
    if (!is(output, Extent::Full))
      return std::nullopt;
  for (Value output : body.getTerminator()->getOperands())
    if (isa<BlockArgument>(output))
      return std::nullopt;
  for (BlockArgument input : body.getArguments())
    if (is(input, Extent::Other))
      return std::nullopt;
  for (Operation &op : body.without_terminator()) {
    auto constant = dyn_cast<graph::ConstantOp>(op);
    auto value = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
    bool known =
        constant ? value && value.isSplat() : isa<graph::Elementwise>(op) || isView(&op);
    bool shrinks = isView(&op) && is(op.getResult(0), Extent::Single) &&
                   !is(op.getOperand(0), Extent::Single);
    if (!known || shrinks || is(op.getResult(0), Extent::Other))
      return std::nullopt;
  }
  return elements;
}

ElasticForm buildElasticForm(graph::RegionOp region, ArrayRef<unsigned> outputs,
                             Block &block) {
  int64_t elements = graph::tensorType(region.getResult(0)).getNumElements();
  return FormBuilder(region, elements, block).build(outputs);
}

bool isElastic(graph::RegionOp region) { return region.getKernel() == elasticKernel; }

std::optional<unsigned> tileInput(graph::RegionOp region) {
  auto number = region->getAttrOfType<IntegerAttr>(tileInputAttr);
  if (!number)
    return std::nullopt;
  return number.getInt();
}

SmallVector<int64_t> TileParams::pack() const {
  return {elements, rows, cols, unitRows, unitCols};
}

std::optional<TileParams> TileParams::unpack(ArrayRef<int64_t> params) {
  if (params.size() != count || llvm::any_of(params, [](int64_t n) { return n < 1; }))
    return std::nullopt;
  TileParams tiles{params[0], params[1], params[2], params[3], params[4]};
  if (tiles.rows * tiles.cols != tiles.elements)
    return std::nullopt;
  return tiles;
}

int64_t TileParams::units() const {
  return llvm::divideCeil(rows, unitRows) * llvm::divideCeil(cols, unitCols);
}

int64_t elasticUnits(int64_t elements) {
  return llvm::divideCeil(elements, RegionDomain::flatUnit);
}

int64_t elasticChunk(int64_t elements, int64_t units) {
  int64_t perUnit = std::max<int64_t>(1, elements / std::max<int64_t>(1, units));
  return std::clamp<int64_t>(llvm::divideCeil(RegionDomain::chunkElements, perUnit), 1,
                             std::max<int64_t>(1, units));
}

int64_t elasticBytes(Type type, int64_t elements) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t bytes = plan::elementBytes(tensor.getElementType());
  return tensor.getRank() == 0 ? bytes : elements * bytes;
}

} // namespace sluice
