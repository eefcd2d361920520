// Comparisons, logic, selection, bits and type conversion.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/NarrowFloat.h"
#include "frontend/onnx/OpTable.h"

#include <limits>

namespace sluice::frontend {

namespace {

template <const char *name> LogicalResult logical(Node &n) {
  Value a = n.in(0);
  return n.out(n.e.bin(name, a, secondOperand(n, a)));
}
template <const char *predicate> LogicalResult compare(Node &n) {
  Value a = n.in(0);
  return n.out(n.e.cmp(a, secondOperand(n, a), predicate));
}
constexpr char and_[] = "and", or_[] = "or", xor_[] = "xor", eq[] = "eq", lt[] = "lt",
               le[] = "le", gt[] = "gt", ge[] = "ge";

LogicalResult importNot(Node &n) {
  return n.out(wrapUnsigned(n, n.e.un("not", n.in(0))));
}
LogicalResult importWhere(Node &n) {
  return n.out(n.e.select(n.in(0), n.in(1), n.in(2)));
}

LogicalResult importIsNaN(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.cmp(x, x, "ne"));
}
LogicalResult importIsInf(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  double infinity = std::numeric_limits<double>::infinity();
  Value high = e.cmp(x, infinity, "eq"), low = e.cmp(x, -infinity, "eq");
  bool positive = n.i("detect_positive", 1), negative = n.i("detect_negative", 1);
  if (positive && negative)
    return n.out(e.bin("or", high, low));
  if (!positive && !negative)
    return n.out(x ? e.splat(shapeOf(x), e.boolType(), 0) : x);
  return n.out(positive ? high : low);
}

/// A shift is a product with, or a quotient by, a power of two from a table.
LogicalResult importBitShift(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), shift = n.in(1);
  if (!x || !shift)
    return failure();
  std::string direction = n.s("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return n.fail("direction '" + direction + "' is unknown, expected LEFT or RIGHT");
  Ints powers;
  for (int i = 0; i < 63; ++i)
    powers.push_back(int64_t(1) << i);
  Type wide = e.i64Type();
  Value factor = e.gather(e.ints(powers), e.cast(shift, wide), 0);
  Value shifted = e.bin(direction == "LEFT" ? "mul" : "div", e.cast(x, wide), factor);
  return n.out(wrapUnsigned(n, e.cast(shifted, elementOf(x))));
}

} // namespace

Value wrapUnsigned(Node &n, Value x) {
  int bits = unsignedBits(n.typeOf(0));
  if (!x || bits == 0 || bits == 64)
    return x;
  return n.e.bin("and", x, n.e.like(x, double((int64_t(1) << bits) - 1)));
}

namespace {

/// To a signed type of four bits, which wraps around as unsigned ones do.
Value wrapNibble(Emitter &e, Value x) {
  Value wide = e.cast(x, e.i64Type());
  Value low = e.bin("and", wide, e.like(wide, 15));
  return e.add(e.bin("xor", low, e.like(low, 8)), -8);
}

Value convert(Node &n, Value x, int32_t onnxType) {
  if (const NarrowFloat *format = narrowFloat(onnxType))
    return roundTo(n.e, x, *format, n.i("saturate", 1) != 0);
  Type type = elementType(n.e.context(), onnxType);
  if (!type)
    return n.e.fail("conversion to " + onnxTypeName(onnxType) + " is not supported");
  int bits = unsignedBits(onnxType);
  if (x && onnxType == 22 && elementOf(x) != n.e.boolType()) // int4
    return n.e.cast(wrapNibble(n.e, x), type);
  if (!x || bits == 0 || bits == 64 || elementOf(x) == n.e.boolType())
    return n.e.cast(x, type);
  // Unsigned types wrap around.
  Value wide = n.e.cast(x, n.e.i64Type());
  Value mask = n.e.like(wide, double((int64_t(1) << bits) - 1));
  return n.e.cast(n.e.bin("and", wide, mask), type);
}
LogicalResult importCast(Node &n) {
  Value x = n.in(0);
  if (n.hasAttr("to") && n.attribute("to")->has_s()) { // before opset 6, the type's name
    onnx::TensorProto::DataType type;
    if (!onnx::TensorProto::DataType_Parse(n.s("to", ""), &type))
      return n.fail("attribute 'to' is no type");
    return n.out(0, convert(n, x, type), type);
  }
  auto type = static_cast<int32_t>(n.i("to", 0));
  return n.out(0, convert(n, x, type), type);
}
LogicalResult importCastLike(Node &n) {
  Value like = n.in(1);
  if (!like)
    return failure();
  int32_t type = n.typeOf(1);
  return n.out(0, type ? convert(n, n.in(0), type) : n.e.cast(n.in(0), elementOf(like)),
               type);
}

} // namespace

void addLogic(OpTable &table) {
  table["And"] = logical<and_>;
  table["Or"] = logical<or_>;
  table["Xor"] = logical<xor_>;
  table["BitwiseAnd"] = logical<and_>;
  table["BitwiseOr"] = logical<or_>;
  table["BitwiseXor"] = logical<xor_>;
  table["Not"] = importNot;
  table["BitwiseNot"] = importNot;
  table["Equal"] = compare<eq>;
  table["Less"] = compare<lt>;
  table["LessOrEqual"] = compare<le>;
  table["Greater"] = compare<gt>;
  table["GreaterOrEqual"] = compare<ge>;
  table["Where"] = importWhere;
  table["IsNaN"] = importIsNaN;
  table["IsInf"] = importIsInf;
  table["BitShift"] = importBitShift;
  table["Cast"] = importCast;
  table["CastLike"] = importCastLike;
}

} // namespace sluice::frontend
