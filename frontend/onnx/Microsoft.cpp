// Forms that exporters and ONNX Runtime's optimiser write in the domain com.microsoft.
#include "frontend/onnx/OpTable.h"

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
  Value y =
      e.op(rms ? "rms_norm" : "layer_norm", operands,
           {e.i64("axis", rankOf(sum) - 1), e.f64("epsilon", n.f("epsilon", 1e-12f))});
  if (n.wants(1) || n.wants(2))
    return n.fail("the results mean and inverse deviation are not supported yet");
  return failed(n.out(0, y)) ? failure() : n.out(3, sum);
}
LogicalResult importSkipLayerNorm(Node &n) { return skipNorm(n, false); }
LogicalResult importSkipRmsNorm(Node &n) { return skipNorm(n, true); }

LogicalResult importFusedMatMul(Node &n) {
  Emitter &e = n.e;
  Value a = n.in(0), b = n.in(1);
  if (!a || !b)
    return failure();
  if (n.i("transBatchA", 0) || n.i("transBatchB", 0))
    return n.fail("transposed batches are not supported yet");
  auto last = [&](Value x) {
    return rankOf(x) < 2 ? x : e.swap(x, rankOf(x) - 2, rankOf(x) - 1);
  };
  Value y = e.matmul(n.i("transA", 0) ? last(a) : a, n.i("transB", 0) ? last(b) : b);
  return n.out(e.mul(y, n.f("alpha", 1)));
}

LogicalResult importBiasSoftmax(Node &n) {
  Value x = n.e.add(n.in(0), n.in(1));
  auto axis = x ? n.axis(n.i("axis", -1), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  if (*axis != rankOf(x) - 1)
    return n.fail("an axis before the last is not supported yet");
  return n.out(n.e.op("softmax", {x}, {n.e.i64("axis", *axis)}));
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
  table["BiasSoftmax"] = importBiasSoftmax;
}

} // namespace sluice::frontend
