#include "passes/CodedProducts.h"

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/SavedMark.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr StringLiteral kernelName = "coded_product";

/// An operand as DequantizeOp::decompose and the rounding behind it made it.
struct Decoded {
  graph::MiniDecodeOp decode;
  bool roundsToBf16 = false;
  SmallVector<Value> stored; // codes and scales, perhaps of other shapes
};

Value behindReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<graph::ReshapeOp>())
    value = reshape.getX();
  return value;
}

Value behindBroadcasts(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<graph::ReshapeOp, graph::BroadcastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// The bytes of codes; null where they are none.
Value codesOf(Value value) {
  value = behindReshapes(value);
  auto halves = value.getDefiningOp<graph::ConcatOp>();
  if (!halves || halves.getInputs().size() != 2)
    return value;
  auto low = halves.getInputs()[0].getDefiningOp<graph::UnpackNibbleOp>();
  auto high = halves.getInputs()[1].getDefiningOp<graph::UnpackNibbleOp>();
  if (!low || !high || low.getHigh() || !high.getHigh() || low.getX() != high.getX())
    return {};
  return behindReshapes(low.getX());
}

/// Adds the scales of blocks, and that of the tensor; false where they are others'.
bool addScales(StoredFormat format, Value each, SmallVectorImpl<Value> &stored) {
  each = behindBroadcasts(each);
  ScaleKind kind = traitsOf(format).scale;
  if (kind == ScaleKind::real) {
    stored.push_back(each);
    return true;
  }
  if (kind == ScaleKind::power) {
    auto power = each.getDefiningOp<graph::PowerValueOp>();
    if (power)
      stored.push_back(behindReshapes(power.getX()));
    return power != nullptr;
  }
  auto own = each.getDefiningOp<graph::MiniDecodeOp>();
  if (own) {
    stored.push_back(behindReshapes(own.getX()));
    stored.push_back(behindBroadcasts(own.getScale()));
  }
  return own != nullptr;
}

/// Only products read it, perhaps rounded or in another shape.
bool isForProducts(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    if (isa<graph::ContractOp>(user))
      return true;
    auto cast = dyn_cast<graph::CastOp>(user);
    bool passes =
        cast && (cast.getElementType().isF32() || cast.getElementType().isBF16());
    return (passes || isa<graph::ReshapeOp>(user)) && isForProducts(user->getResult(0));
  });
}

std::optional<Decoded> decodedOperand(Value operand) {
  Decoded found;
  Value value = operand;
  while (Operation *op = value.getDefiningOp()) {
    if (auto cast = dyn_cast<graph::CastOp>(op)) {
      Type to = cast.getElementType();
      if (!to.isF32() && !to.isBF16())
        return std::nullopt;
      found.roundsToBf16 |= to.isBF16();
    } else if (!isa<graph::ReshapeOp>(op)) {
      break;
    }
    value = op->getOperand(0);
  }
  found.decode = value.getDefiningOp<graph::MiniDecodeOp>();
  if (!found.decode || !isForProducts(value))
    return std::nullopt;
  auto name = found.decode->getAttrOfType<StringAttr>(graph::decodedFormatAttr);
  std::optional<StoredFormat> format =
      name ? storedFormat(name.getValue().str()) : std::nullopt;
  Value codes = codesOf(found.decode.getX());
  if (!format || !codes)
    return std::nullopt;
  found.stored.push_back(codes);
  if (!addScales(*format, found.decode.getScale(), found.stored))
    return std::nullopt;
  return found;
}

class RegionMaker {
public:
  explicit RegionMaker(graph::ContractOp product)
      : product(product), builder(product), b(product.getLoc(), builder) {}

  void run(ArrayRef<std::optional<Decoded>> operands) {
    SmallVector<Value> inputs;
    for (auto [i, decoded] : llvm::enumerate(operands))
      if (decoded)
        llvm::append_range(inputs, decoded->stored);
      else
        inputs.push_back(narrowSource(product->getOperand(i)));
    auto region = b.create<graph::RegionOp>(product->getResultTypes(), ValueRange(inputs),
                                            b.getStringAttr(kernelName));
    for (NamedAttribute attribute : product->getDiscardableAttrs())
      region->setAttr(attribute.getName(), attribute.getValue());
    Block &body = region.getBody().emplaceBlock();
    for (Value input : inputs)
      body.addArgument(input.getType(), product.getLoc());
    b.setInsertionPointToEnd(&body);
    IRMapping map;
    unsigned next = 0;
    for (auto [i, decoded] : llvm::enumerate(operands)) {
      Value operand = product->getOperand(i);
      auto type = graph::tensorType(operand);
      map.map(operand, decoded ? decode(*decoded, type, body, next)
                               : typed(body.getArgument(next++), type));
    }
    Operation *inside = b.clone(*product, map);
    b.create<graph::YieldOp>(inside->getResults());
    product->replaceAllUsesWith(region->getResults());
    product.erase();
  }

private:
  Value typed(Value value, RankedTensorType type) {
    Type element = type.getElementType();
    return graph::tensorType(value).getElementType() == element ? value
                                                                : b.cast(value, element);
  }

  Value shaped(Value value, ArrayRef<int64_t> shape) {
    return graph::tensorType(value).getShape() == shape ? value : b.reshape(value, shape);
  }

  Value decode(const Decoded &decoded, RankedTensorType type, Block &body,
               unsigned &next) {
    auto format = decoded.decode->getAttrOfType<StringAttr>(graph::decodedFormatAttr);
    auto shape =
        decoded.decode->getAttrOfType<DenseI64ArrayAttr>(graph::decodedShapeAttr);
    std::span<const int64_t> sizes(shape.asArrayRef().data(), shape.size());
    StoredFormat kind = *storedFormat(format.getValue().str());
    SmallVector<Value> stored;
    for (size_t i = 0; i < decoded.stored.size(); ++i) {
      Value part = body.getArgument(next++);
      SmallVector<int64_t> own = llvm::to_vector(shape.asArrayRef());
      if (i == 0 && traitsOf(kind).bits == 4)
        own = {codeBytes(kind, sizes)};
      else if (i > 0)
        own = {i == 1 ? blocksOf(kind, sizes).count() : 1};
      stored.push_back(shaped(part, own));
    }
    Value value = b.make<graph::DequantizeOp>(stored, format.getValue(), shape);
    value = shaped(value, type.getShape());
    if (decoded.roundsToBf16)
      value = b.cast(value, b.getBF16Type());
    return typed(value, type);
  }

  graph::ContractOp product;
  OpBuilder builder;
  graph::GraphBuilder b;
};

} // namespace

void formCodedProducts(Block &block) {
  auto products = llvm::to_vector(block.getOps<graph::ContractOp>());
  for (graph::ContractOp product : products) {
    if (graph::tensorType(product.getY()).getNumElements() == 0 ||
        !contractAsGemm(product))
      continue;
    std::optional<Decoded> operands[] = {decodedOperand(product.getLhs()),
                                         decodedOperand(product.getRhs())};
    if (operands[0] || operands[1])
      RegionMaker(product).run(operands);
  }
  for (auto decode : block.getOps<graph::MiniDecodeOp>()) {
    decode->removeAttr(graph::decodedFormatAttr);
    decode->removeAttr(graph::decodedShapeAttr);
  }
}

graph::ContractOp codedProduct(Operation *op) {
  auto region = dyn_cast<graph::RegionOp>(op);
  if (!region || region.getKernel() != kernelName)
    return nullptr;
  return *region.getBody().front().getOps<graph::ContractOp>().begin();
}

ProductSource productSource(graph::RegionOp region, Value operand) {
  auto inputOf = [&](Value argument) {
    return region.getInputs()[cast<BlockArgument>(argument).getArgNumber()];
  };
  Operation *op = operand.getDefiningOp();
  while (op && isa<graph::CastOp, graph::ReshapeOp>(op)) {
    operand = op->getOperand(0);
    op = operand.getDefiningOp();
  }
  auto decode = dyn_cast_or_null<graph::DequantizeOp>(op);
  if (!decode)
    return {{inputOf(operand)}, std::nullopt, {}};
  ProductSource source{{}, storedFormat(decode.getFormat().str()), decode.getShape()};
  for (Value part : decode.getStored())
    source.inputs.push_back(inputOf(behindReshapes(part)));
  return source;
}

} // namespace sluice
