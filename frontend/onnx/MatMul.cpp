// Matrix products.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

LogicalResult importMatMul(Node &n) { return n.out(n.e.matmul(n.in(0), n.in(1))); }

/// y = alpha * a' * b' + beta * c
LogicalResult importGemm(Node &n) {
  Emitter &e = n.e;
  Value a = n.in(0), b = n.in(1);
  if (!a || !b)
    return failure();
  if (n.version < 7 && rankOf(a) > 2) // rows were what remains after the first dimension
    a = e.reshape(a, {dimOf(a, 0), elementCount(shapeOf(a).drop_front())});
  if (rankOf(a) != 2 || rankOf(b) != 2)
    return n.fail("operands have shapes " + shapeText(shapeOf(a)) + " and " +
                  shapeText(shapeOf(b)) + ", expected matrices");
  Value y =
      e.contract(a, b, {}, {}, {n.i("transA", 0) ? 0 : 1}, {n.i("transB", 0) ? 1 : 0});
  y = e.mul(y, n.f("alpha", 1));
  double beta = n.f("beta", 1);
  if (!y || !n.has(2) || beta == 0)
    return n.out(y);
  return n.out(e.add(y, e.broadcast(e.mul(n.in(2), beta), shapeOf(y))));
}

} // namespace

void addMatMul(OpTable &table) {
  table["MatMul"] = importMatMul;
  table["Gemm"] = importGemm;
}

} // namespace sluice::frontend
