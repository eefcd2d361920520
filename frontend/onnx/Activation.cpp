// Activation functions.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

LogicalResult importRelu(Node &n) { return n.out(n.e.un("relu", n.in(0))); }
LogicalResult importSigmoid(Node &n) { return n.out(n.e.un("sigmoid", n.in(0))); }
LogicalResult importTanh(Node &n) { return n.out(n.e.un("tanh", n.in(0))); }
LogicalResult importSoftplus(Node &n) { return n.out(n.e.un("softplus", n.in(0))); }

LogicalResult importLeakyRelu(Node &n) {
  Value x = n.in(0);
  return n.out(positiveOr(n.e, x, n.e.mul(x, n.f("alpha", 0.01f))));
}

/// scale * (e^(x / width) - 1) of the negative part; e^x of the positive one could
/// overflow.
Value exponentialPart(Emitter &e, Value x, double scale, double width) {
  Value negative = negativePart(e, x);
  if (width != 1 && negative)
    negative = e.div(negative, e.like(negative, width));
  return e.mul(e.add(e.un("exp", negative), -1), scale);
}
LogicalResult importElu(Node &n) {
  Value x = n.in(0);
  return n.out(positiveOr(n.e, x, exponentialPart(n.e, x, n.f("alpha", 1), 1)));
}
LogicalResult importCelu(Node &n) {
  Value x = n.in(0);
  double alpha = n.f("alpha", 1);
  return n.out(positiveOr(n.e, x, exponentialPart(n.e, x, alpha, alpha)));
}
LogicalResult importSelu(Node &n) {
  double alpha = n.f("alpha", n.version < 6 ? 1.6732f : 1.67326319217681884765625f);
  double gamma = n.f("gamma", n.version < 6 ? 1.0507f : 1.05070102214813232421875f);
  Value x = n.in(0);
  return n.out(n.e.mul(positiveOr(n.e, x, exponentialPart(n.e, x, alpha, 1)), gamma));
}

LogicalResult importHardSigmoid(Node &n) {
  Emitter &e = n.e;
  Value line = e.add(e.mul(n.in(0), n.f("alpha", 0.2f)), n.f("beta", 0.5f));
  return n.out(clamp(e, line, 0, 1));
}
LogicalResult importHardSwish(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  return n.out(e.mul(x, clamp(e, e.add(e.mul(x, 1.0 / 6), 0.5), 0, 1)));
}
LogicalResult importMish(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.mul(x, n.e.un("tanh", n.e.un("softplus", x))));
}
LogicalResult importSoftsign(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.div(x, n.e.add(n.e.un("abs", x), 1)));
}
LogicalResult importThresholdedRelu(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.select(n.e.cmp(x, n.f("alpha", 1), "gt"), x, n.e.like(x, 0)));
}
LogicalResult importShrink(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  double lambda = n.f("lambd", 0.5), bias = n.f("bias", 0);
  Value high = e.select(e.cmp(x, lambda, "gt"), e.add(x, -bias), e.like(x, 0));
  return n.out(e.select(e.cmp(x, -lambda, "lt"), e.add(x, bias), high));
}

LogicalResult importPRelu(Node &n) {
  Value x = n.in(0), slope = n.in(1);
  if (!x || !slope)
    return failure();
  auto shape = broadcastShape(shapeOf(x), shapeOf(slope));
  bool fits = shape && llvm::ArrayRef<int64_t>(*shape) == shapeOf(x);
  // Before opset 7, and in some later files, one slope per channel.
  bool perChannel = rankOf(slope) == 1 && rankOf(x) > 1 && dimOf(slope, 0) == dimOf(x, 1);
  if (perChannel && (n.version < 7 || !fits))
    slope = n.e.along(slope, shapeOf(x), 1);
  return n.out(positiveOr(n.e, x, n.e.mul(x, slope)));
}

LogicalResult importGelu(Node &n) {
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  std::string form = n.s("approximate", "none");
  if (form == "tanh")
    attributes.push_back(n.e.flag("tanh_form"));
  else if (form != "none")
    return n.fail("approximate '" + form + "' is unknown, expected none or tanh");
  return n.out(n.e.op("gelu", {n.in(0)}, attributes));
}
LogicalResult importSwish(Node &n) {
  Value x = n.in(0);
  double alpha = n.f("alpha", 1);
  if (alpha == 1)
    return n.out(n.e.un("silu", x));
  return n.out(n.e.mul(x, n.e.un("sigmoid", n.e.mul(x, alpha))));
}

} // namespace

void addActivation(OpTable &table) {
  table["Relu"] = importRelu;
  table["Sigmoid"] = importSigmoid;
  table["Tanh"] = importTanh;
  table["Softplus"] = importSoftplus;
  table["LeakyRelu"] = importLeakyRelu;
  table["Elu"] = importElu;
  table["Celu"] = importCelu;
  table["Selu"] = importSelu;
  table["HardSigmoid"] = importHardSigmoid;
  table["HardSwish"] = importHardSwish;
  table["Mish"] = importMish;
  table["Softsign"] = importSoftsign;
  table["ThresholdedRelu"] = importThresholdedRelu;
  table["Shrink"] = importShrink;
  table["PRelu"] = importPRelu;
  table["Gelu"] = importGelu;
  table["Swish"] = importSwish;
}

} // namespace sluice::frontend
