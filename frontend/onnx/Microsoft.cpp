// Forms that exporters and ONNX Runtime's optimiser write in the domain com.microsoft.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Window.h"

namespace sluice::frontend {

namespace {

Value withBias(Node &n, int i) {
  Value x = n.in(0);
  return n.has(i) ? n.e.add(x, n.in(i)) : x;
}
LogicalResult importGelu(Node &n) { return n.out(n.e.un("gelu", withBias(n, 1))); }
LogicalResult importFastGelu(Node &n) {
  return n.out(n.e.op("gelu", {withBias(n, 1)}, {n.e.flag("tanh_form")}));
}
LogicalResult importQuickGelu(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.mul(x, n.e.un("sigmoid", n.e.mul(x, n.f("alpha", 1.702f)))));
}

/// y = norm(input + skip + bias); the sum is result 3.
LogicalResult skipNorm(Node &n, bool rms) {
  Emitter &e = n.e;
  int biasIndex = rms ? 3 : 4;
  Value sum = e.add(n.in(0), n.in(1));
  if (n.has(biasIndex))
    sum = e.add(sum, n.in(biasIndex));
  if (!sum || rankOf(sum) < 1)
    return failure();
  llvm::SmallVector<Value> operands = {sum, n.in(2)};
  if (!rms && n.has(3))
    operands.push_back(n.in(3));
  auto results =
      e.ops(rms ? "rms_norm" : "layer_norm", operands,
            {e.i64("axis", rankOf(sum) - 1), e.f64("epsilon", n.f("epsilon", 1e-12f))});
  if (rms && (n.wants(1) || n.wants(2)))
    return n.fail("the results mean and inverse deviation are not supported yet");
  for (int i = 0; i < (rms ? 1 : 3); ++i)
    if (n.wants(i) && failed(n.out(i, results[i])))
      return failure();
  return n.out(3, sum);
}
LogicalResult importSkipLayerNorm(Node &n) { return skipNorm(n, false); }
LogicalResult importSkipRmsNorm(Node &n) { return skipNorm(n, true); }

/// The fused activation, by its name in attribute `activation`.
Value activated(Node &n, Value x) {
  Emitter &e = n.e;
  std::string kind = n.s("activation", "");
  auto parameters = n.fs("activation_params");
  auto given = [&](size_t i, double otherwise, const char *name) {
    return parameters.size() > i ? parameters[i] : n.f(name, otherwise);
  };
  if (kind.empty() || !x)
    return x;
  if (kind == "Relu")
    return e.un("relu", x);
  if (kind == "Sigmoid" || kind == "Tanh")
    return e.un(kind == "Tanh" ? "tanh" : "sigmoid", x);
  if (kind == "LeakyRelu")
    return positiveOr(e, x, e.mul(x, given(0, 0.01f, "activation_alpha")));
  if (kind == "Clip")
    return clamp(e, x, given(0, -3.4e38, "activation_min"),
                 given(1, 3.4e38, "activation_max"));
  if (kind == "HardSigmoid")
    return clamp(e,
                 e.add(e.mul(x, given(0, 0.2f, "activation_alpha")),
                       given(1, 0.5f, "activation_beta")),
                 0, 1);
  return e.fail("the fused activation '" + kind + "' is not supported yet");
}

/// A stack of matrices with its rows or columns in the last place but one, and behind a
/// batch that `batchLast` has at the end.
Value oriented(Emitter &e, Value x, bool transposed, bool batchLast) {
  int64_t rank = x ? rankOf(x) : 0;
  if (rank < 2)
    return x;
  Ints order = range(rank);
  if (batchLast) // [rows, batch..., columns] as [batch..., rows, columns]
    std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (transposed)
    std::swap(order[rank - 1], order[rank - 2]);
  return e.transpose(x, order);
}
LogicalResult importFusedMatMul(Node &n) {
  Emitter &e = n.e;
  Value a = oriented(e, n.in(0), n.i("transA", 0), n.i("transBatchA", 0));
  Value b = oriented(e, n.in(1), n.i("transB", 0), n.i("transBatchB", 0));
  return n.out(activated(n, e.mul(e.matmul(a, b), n.f("alpha", 1))));
}
LogicalResult importFusedGemm(Node &n) {
  Emitter &e = n.e;
  Value y = e.matmul(oriented(e, n.in(0), n.i("transA", 0), false),
                     oriented(e, n.in(1), n.i("transB", 0), false));
  y = e.mul(y, n.f("alpha", 1));
  if (y && n.has(2))
    y = e.add(y, e.broadcast(e.mul(n.in(2), n.f("beta", 1)), shapeOf(y)));
  return n.out(activated(n, y));
}
LogicalResult importGemmFastGelu(Node &n) {
  Emitter &e = n.e;
  Value y = e.matmul(n.in(0), n.in(1));
  if (n.has(2))
    y = e.add(y, n.in(2));
  return n.out(e.op("gelu", {y}, {e.flag("tanh_form")}));
}
LogicalResult importFusedConv(Node &n) {
  Value y = convolution(n, n.in(0), n.in(1), n.has(2) ? n.in(2) : Value());
  if (n.has(3))
    y = n.e.add(y, n.in(3));
  return n.out(activated(n, y));
}

/// Diffusion models: [batch, pixels, channels] plus a bias and the skipped input.
LogicalResult importBiasAdd(Node &n) {
  return n.out(n.e.add(n.e.add(n.in(0), n.in(1)), n.in(2)));
}
/// The first half of the channels times gelu of the second.
LogicalResult importBiasSplitGelu(Node &n) {
  Emitter &e = n.e;
  Value x = e.add(n.in(0), n.in(1));
  if (!x || rankOf(x) < 1 || dimOf(x, rankOf(x) - 1) % 2)
    return n.fail("the channels cannot be halved");
  int64_t last = rankOf(x) - 1, half = dimOf(x, last) / 2;
  return n.out(e.mul(e.sliceAxis(x, last, 0, half),
                     e.un("gelu", e.sliceAxis(x, last, half, half))));
}
/// GroupNorm, channels last unless told otherwise; with silu behind where asked.
LogicalResult importMsGroupNorm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  bool last = n.i("channels_last", 1);
  int64_t groups = n.i("groups", 0), rank = x ? rankOf(x) : 0;
  if (rank != 4 || groups < 1 || dimOf(x, last ? 3 : 1) % groups)
    return n.fail("groups do not divide the channels");
  if (last)
    x = e.transpose(x, {0, 3, 1, 2});
  Ints shape(shapeOf(x));
  int64_t rest = elementCount(llvm::ArrayRef<int64_t>(shape).drop_front()) / groups;
  Value y = e.reshape(x, {shape[0], groups, rest});
  Value centred = e.sub(y, e.mean(y, {2}, true));
  Value variance = e.mean(e.mul(centred, centred), {2}, true);
  y = e.mul(centred, e.un("rsqrt", e.add(variance, n.f("epsilon", 1e-5f))));
  y = e.mul(e.reshape(y, shape), e.along(n.in(1), shape, 1));
  y = e.add(y, e.along(n.in(2), shape, 1));
  if (n.i("activation", 0))
    y = e.un("silu", y);
  return n.out(last && y ? e.transpose(y, {0, 2, 3, 1}) : y);
}

/// What only inference uses: quantised weights, decoding loops, caches.
template <const char *advice> LogicalResult refuse(Node &n) { return n.fail(advice); }
constexpr char quantized[] = "holds quantised weights, which are not trained; export the "
                             "model before quantisation";
constexpr char decoding[] = "is a decoding loop, which is not trained; export the model "
                            "that it calls";

LogicalResult importBiasSoftmax(Node &n) {
  Value x = n.e.add(n.in(0), n.in(1));
  auto axis = x ? n.axis(n.i("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  Ints rows(shapeOf(x).take_front(*axis)); // what lies behind counts as one dimension
  rows.push_back(elementCount(shapeOf(x).drop_front(*axis)));
  Value y = n.e.op("softmax", {n.e.reshape(x, rows)}, {n.e.i64("axis", *axis)});
  return n.out(n.e.reshape(y, shapeOf(x)));
}

} // namespace

void addMicrosoft(OpTable &table) {
  table["Gelu"] = importGelu;
  table["BiasGelu"] = importGelu;
  table["FastGelu"] = importFastGelu;
  table["QuickGelu"] = importQuickGelu;
  table["SkipLayerNormalization"] = importSkipLayerNorm;
  table["SkipSimplifiedLayerNormalization"] = importSkipRmsNorm;
  table["FusedMatMul"] = importFusedMatMul;
  table["TransposeMatMul"] = importFusedMatMul;
  table["FusedMatMulActivation"] = importFusedMatMul;
  table["FusedGemm"] = importFusedGemm;
  table["GemmFastGelu"] = importGemmFastGelu;
  table["FusedConv"] = importFusedConv;
  table["BiasSoftmax"] = importBiasSoftmax;
  table["BiasAdd"] = importBiasAdd;
  table["BiasSplitGelu"] = importBiasSplitGelu;
  table["GroupNorm"] = importMsGroupNorm;
  addMicrosoftAttention(table);
  // Forms of the standard set that were there first.
  for (const char *name : {"GridSample", "LayerNormalization", "QuantizeLinear",
                           "DequantizeLinear", "SimplifiedLayerNormalization", "Trilu"})
    table[name] = findHandler("", name);
  for (const char *name : {"DynamicQuantizeMatMul",
                           "DynamicQuantizeLSTM",
                           "MatMulNBits",
                           "MatMulFpQ4",
                           "MatMulBnb4",
                           "MatMulInteger16",
                           "MatMulIntegerToFloat",
                           "QAttention",
                           "QGemm",
                           "QLinearAdd",
                           "QLinearMul",
                           "QLinearSigmoid",
                           "QLinearLeakyRelu",
                           "QLinearSoftmax",
                           "QLinearConcat",
                           "QLinearWhere",
                           "QLinearAveragePool",
                           "QLinearGlobalAveragePool",
                           "QLinearReduceMean",
                           "QEmbedLayerNormalization",
                           "QOrderedMatMul",
                           "GatherBlockQuantized"})
    table[name] = refuse<quantized>;
  for (const char *name : {"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
    table[name] = refuse<decoding>;
}

} // namespace sluice::frontend
