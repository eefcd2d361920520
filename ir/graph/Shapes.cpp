// The checks that the families share when they infer types.
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace sluice::graph {

LogicalResult expectWideProduct(Operation *op, Value operand) {
  Type element = cast<RankedTensorType>(operand.getType()).getElementType();
  if (sumType(element) == element)
    return success();
  return op->emitOpError() << "has no gradient for operands of " << element
                           << "; precision is assigned after gradients are built";
}

std::string listText(ArrayRef<int64_t> values) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << '[';
  llvm::interleaveComma(values, stream);
  stream << ']';
  return text;
}

RankedTensorType operandType(StringRef op, std::optional<Location> loc,
                             ValueRange operands, unsigned index) {
  if (index >= operands.size()) {
    (void)emitOptionalError(loc, "'", op, "' has ", operands.size(),
                            " operands, expected at least ", index + 1);
    return {};
  }
  auto type = dyn_cast<RankedTensorType>(operands[index].getType());
  if (type && type.hasStaticShape())
    return type;
  (void)emitOptionalError(loc, "operand ", index, " of '", op, "' has type ",
                          operands[index].getType(),
                          ", expected a tensor of static shape");
  return {};
}

LogicalResult checkRange(StringRef op, std::optional<Location> loc, StringRef attribute,
                         int64_t value, int64_t limit) {
  if (value >= 0 && value < limit)
    return success();
  if (limit == 0)
    return emitOptionalError(loc, "'", attribute, "' of '", op, "' is ", value,
                             ", but the operand has no dimensions");
  return emitOptionalError(loc, "'", attribute, "' of '", op, "' is ", value,
                           ", expected 0 to ", limit - 1);
}

LogicalResult checkLength(StringRef op, std::optional<Location> loc, StringRef attribute,
                          ArrayRef<int64_t> list, int64_t expected) {
  if (static_cast<int64_t>(list.size()) == expected)
    return success();
  return emitOptionalError(loc, "'", attribute, "' of '", op, "' has ", list.size(),
                           " entries, expected ", expected, " (one per dimension)");
}

LogicalResult checkAtLeast(StringRef op, std::optional<Location> loc, StringRef attribute,
                           ArrayRef<int64_t> list, int64_t least) {
  for (auto [i, value] : llvm::enumerate(list))
    if (value < least)
      return emitOptionalError(loc, "entry ", i, " of '", attribute, "' of '", op,
                               "' is ", value, ", expected at least ", least);
  return success();
}

LogicalResult checkDimensions(StringRef op, std::optional<Location> loc,
                              StringRef attribute, ArrayRef<int64_t> list, int64_t rank) {
  for (auto [i, value] : llvm::enumerate(list)) {
    if (value < 0 || value >= rank)
      return emitOptionalError(loc, "entry ", i, " of '", attribute, "' of '", op,
                               "' is ", value, ", but the operand has ", rank,
                               " dimensions");
    if (llvm::is_contained(list.take_front(i), value))
      return emitOptionalError(loc, "'", attribute, "' of '", op, "' names dimension ",
                               value, " twice");
  }
  return success();
}

} // namespace sluice::graph
