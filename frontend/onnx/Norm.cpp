// Normalisations.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// (x - mean) / sqrt(variance + epsilon) over `axes`.
Value standardize(Emitter &e, Value x, llvm::ArrayRef<int64_t> axes, double epsilon) {
  Value centred = e.sub(x, e.mean(x, axes, true));
  Value variance = e.mean(e.mul(centred, centred), axes, true);
  return e.mul(centred, e.un("rsqrt", e.add(variance, epsilon)));
}
/// y * scale + bias, both along dimension 1.
Value perChannel(Emitter &e, Value y, Value scale, Value bias) {
  if (!y)
    return y;
  return e.add(e.mul(y, e.along(scale, shapeOf(y), 1)), e.along(bias, shapeOf(y), 1));
}
Ints axesFrom(Value x, int64_t first) {
  Ints axes;
  for (int64_t i = first; x && i < rankOf(x); ++i)
    axes.push_back(i);
  return axes;
}

mlir::FlatSymbolRefAttr stateSymbol(Value value) {
  auto read = value.getDefiningOp<graph::ReadOp>();
  return read ? read.getSymbolAttr() : mlir::FlatSymbolRefAttr();
}

/// Training mode: the statistics of the batch, and the running ones as further results.
LogicalResult trainBatchNorm(Node &n, Value x, llvm::ArrayRef<Value> p,
                             llvm::ArrayRef<int64_t> shape) {
  Emitter &e = n.e;
  double momentum = n.f("momentum", 0.9f);
  llvm::SmallVector<mlir::NamedAttribute> attributes = {
      e.f64("epsilon", n.f("epsilon", 1e-5f)), e.f64("momentum", momentum)};
  if (auto mean = stateSymbol(p[2]))
    attributes.push_back(e.builder.getNamedAttr("running_mean", mean));
  if (auto variance = stateSymbol(p[3]))
    attributes.push_back(e.builder.getNamedAttr("running_variance", variance));
  auto results = e.ops("batch_norm_train", {x, p[0], p[1]}, attributes);
  n.importer.note("BatchNormalization",
                  "in training mode the running variance takes the population variance "
                  "(divided by N), the ONNX convention; PyTorch divides by N - 1");
  if (failed(n.out(0, e.reshape(results[0], shape))))
    return failure();
  for (int i : {1, 2}) {
    if (!n.wants(i))
      continue;
    Value running = e.add(e.mul(p[i + 1], momentum), e.mul(results[i], 1 - momentum));
    if (failed(n.out(i, running)))
      return failure();
  }
  for (int i : {3, 4}) // saved statistics, before opset 14
    if (n.wants(i) && failed(n.out(i, results[i - 2])))
      return failure();
  return success();
}

LogicalResult importBatchNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  llvm::SmallVector<Value> p;
  for (int i = 1; i < 5; ++i) {
    Value value = n.in(i);
    if (!x || !value)
      return failure();
    p.push_back(e.cast(value, elementOf(x)));
  }
  Ints shape(shapeOf(x));
  if (shape.size() < 2)
    return n.fail("the operand has rank " + llvm::Twine(shape.size()) +
                  ", expected 2 or more");
  if (n.version < 9 &&
      !n.i("spatial", 1)) { // statistics per element: one long channel axis
    x = e.reshape(x,
                  {shape[0], elementCount(llvm::ArrayRef<int64_t>(shape).drop_front())});
    for (Value &value : p)
      value = e.reshape(value, {elementCount(shapeOf(value))});
  }
  for (Value value : p)
    if (!x || !value || shapeOf(value) != llvm::ArrayRef<int64_t>({dimOf(x, 1)}))
      return n.fail("a parameter does not have one element per channel");
  bool train = n.version >= 14  ? n.i("training_mode", 0) != 0
               : n.version >= 7 ? n.outputs() > 1
                                : !n.i("is_test", 0) && n.outputs() > 1;
  if (train)
    return trainBatchNorm(n, x, p, shape);
  n.importer.note("BatchNormalization",
                  "nodes in evaluation form use the running statistics, which training "
                  "then leaves as they are; export in training mode to train with those "
                  "of the batch");
  Value y = e.op("batch_norm", {x, p[0], p[1], p[2], p[3]},
                 {e.f64("epsilon", n.f("epsilon", 1e-5f))});
  return n.out(e.reshape(y, shape));
}

LogicalResult importInstanceNorm(Node &n) {
  Value x = n.in(0);
  if (!x || rankOf(x) < 3)
    return n.fail("the operand needs a rank of 3 or more");
  Value y = standardize(n.e, x, axesFrom(x, 2), n.f("epsilon", 1e-5f));
  return n.out(perChannel(n.e, y, n.in(1), n.in(2)));
}

LogicalResult importGroupNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), scale = n.in(1), bias = n.in(2);
  int64_t groups = n.i("num_groups", 0);
  if (!x || !scale || !bias || rankOf(x) < 2 || groups < 1 || dimOf(x, 1) % groups != 0)
    return n.fail("num_groups does not divide the channels");
  Ints shape(shapeOf(x));
  int64_t channels = shape[1],
          rest = elementCount(llvm::ArrayRef<int64_t>(shape).drop_front());
  Value y = standardize(e, e.reshape(x, {shape[0], groups, rest / groups}), {2},
                        n.f("epsilon", 1e-5f));
  y = e.reshape(y, shape);
  auto spread = [&](Value v) { // opset 18 has one element per group
    if (v && n.version < 21 && elementCount(shapeOf(v)) == groups && groups != channels)
      v = e.reshape(e.broadcast(e.reshape(v, {groups, 1}), {groups, channels / groups}),
                    {channels});
    return v;
  };
  return n.out(perChannel(e, y, spread(scale), spread(bias)));
}

struct NormalizedPart {
  Value x;
  int64_t axis;
  Ints shape; // of scale and bias
};
std::optional<NormalizedPart> normalizedPart(Node &n) {
  Value x = n.in(0);
  auto axis = x ? n.axis(n.i("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return std::nullopt;
  return NormalizedPart{x, *axis, Ints(shapeOf(x).drop_front(*axis))};
}

LogicalResult importLayerNorm(Node &n) {
  Emitter &e = n.e;
  auto part = normalizedPart(n);
  if (!part)
    return failure();
  llvm::SmallVector<Value> operands = {part->x, e.broadcast(n.in(1), part->shape)};
  if (n.has(2))
    operands.push_back(e.broadcast(n.in(2), part->shape));
  auto results =
      e.ops("layer_norm", operands,
            {e.i64("axis", part->axis), e.f64("epsilon", n.f("epsilon", 1e-5f))});
  for (int i = 0; i < 3; ++i)
    if (n.wants(i) && failed(n.out(i, results[i])))
      return failure();
  return success();
}
LogicalResult importRmsNorm(Node &n) {
  Emitter &e = n.e;
  auto part = normalizedPart(n);
  if (!part)
    return failure();
  return n.out(
      e.op("rms_norm", {part->x, e.broadcast(n.in(1), part->shape)},
           {e.i64("axis", part->axis), e.f64("epsilon", n.f("epsilon", 1e-5f))}));
}

LogicalResult importLpNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto axis = x ? n.axis(n.i("axis", -1), rankOf(x)) : std::nullopt;
  int64_t p = n.i("p", 2);
  if (!axis || (p != 1 && p != 2))
    return n.fail("p is " + llvm::Twine(p) + ", expected 1 or 2");
  Value norm = p == 1 ? e.reduce(e.un("abs", x), "sum", {*axis}, true)
                      : e.un("sqrt", e.reduce(e.mul(x, x), "sum", {*axis}, true));
  return n.out(e.div(x, norm));
}
LogicalResult importMeanVarianceNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto axes = x ? n.axes(n.is("axes").value_or(Ints{0, 2, 3}), rankOf(x)) : std::nullopt;
  if (!axes)
    return failure();
  Value centred = e.sub(x, e.mean(x, *axes, true));
  Value deviation = e.un("sqrt", e.mean(e.mul(centred, centred), *axes, true));
  return n.out(e.div(centred, e.add(deviation, 1e-9)));
}

/// x / (bias + alpha * mean of the squares of `size` channels)^beta; the mean is a pool
/// over channels.
LogicalResult importLrn(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t size = n.i("size", 0);
  if (!x || rankOf(x) < 2 || size < 1 || size > 1 << 20)
    return n.fail("attribute 'size' is missing or out of range");
  auto shape = shapeOf(x);
  int64_t channels = shape[1], inner = elementCount(shape.drop_front(2));
  Value squares = e.reshape(e.mul(x, x), {shape[0], 1, channels, inner});
  int64_t before = (size - 1) / 2;
  Value mean = e.op("avg_pool", {squares},
                    {e.i64s("kernel", {size, 1}), e.i64s("strides", {1, 1}),
                     e.i64s("dilations", {1, 1}), e.i64s("pads_begin", {before, 0}),
                     e.i64s("pads_end", {size - 1 - before, 0}),
                     e.i64s("output", {channels, inner}), e.flag("count_include_pad")});
  Value base = e.add(e.mul(e.reshape(mean, shape), n.f("alpha", 1e-4f)), n.f("bias", 1));
  Value power = base ? e.bin("pow", base, e.like(base, n.f("beta", 0.75f))) : base;
  return n.out(e.div(x, power));
}

} // namespace

void addNorm(OpTable &table) {
  table["BatchNormalization"] = importBatchNorm;
  table["InstanceNormalization"] = importInstanceNorm;
  table["GroupNormalization"] = importGroupNorm;
  table["LayerNormalization"] = importLayerNorm;
  table["RMSNormalization"] = importRmsNorm;
  table["SimplifiedLayerNormalization"] = importRmsNorm; // ONNX Runtime's name
  table["LpNormalization"] = importLpNorm;
  table["MeanVarianceNormalization"] = importMeanVarianceNorm;
  table["LRN"] = importLrn;
}

} // namespace sluice::frontend
