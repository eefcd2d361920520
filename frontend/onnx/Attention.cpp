// Attention and RotaryEmbedding of opset 23, decomposed.
#include "frontend/onnx/OpTable.h"

#include <cmath>
#include <limits>

namespace sluice::frontend {

namespace {

/// [batch, sequence, heads * size] as [batch, heads, sequence, size].
Value splitHeads(Emitter &e, Value x, int64_t heads) {
  if (!x || rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3 || heads < 1 || dimOf(x, 2) % heads != 0)
    return e.fail("the number of heads does not fit " + shapeText(shapeOf(x)));
  Ints shape = {dimOf(x, 0), dimOf(x, 1), heads, dimOf(x, 2) / heads};
  return e.transpose(e.reshape(x, shape), {0, 2, 1, 3});
}

/// Key and value heads are shared by groups of query heads.
Value repeatHeads(Emitter &e, Value x, int64_t heads) {
  if (!x || dimOf(x, 1) == heads)
    return x;
  int64_t own = dimOf(x, 1);
  if (own == 0 || heads % own != 0)
    return e.fail("query heads are no multiple of key heads");
  Ints split = {dimOf(x, 0), own, 1, dimOf(x, 2), dimOf(x, 3)}, wide = split;
  wide[2] = heads / own;
  return e.reshape(e.broadcast(e.reshape(x, split), wide),
                   {dimOf(x, 0), heads, dimOf(x, 2), dimOf(x, 3)});
}

/// 0 where allowed, -inf where masked.
Value additiveMask(Emitter &e, Value mask, Type type) {
  if (!mask || isFloat(mask))
    return mask;
  Value allowed = e.splat(shapeOf(mask), type, 0);
  return e.select(mask, allowed,
                  e.like(allowed, -std::numeric_limits<double>::infinity()));
}

LogicalResult importAttention(Node &n) {
  Emitter &e = n.e;
  Value q = n.in(0), k = n.in(1), v = n.in(2);
  if (!q || !k || !v)
    return failure();
  if (n.wants(3))
    return n.fail("the result 'qk_matmul_output' is not supported yet");
  bool flat = rankOf(q) == 3;
  q = splitHeads(e, q, n.i("q_num_heads", 0));
  k = splitHeads(e, k, n.i("kv_num_heads", 0));
  v = splitHeads(e, v, n.i("kv_num_heads", 0));
  if (!q || !k || !v || rankOf(q) != 4 || rankOf(k) != 4 || rankOf(v) != 4)
    return failure();
  int64_t past = 0;
  if (n.has(4) && n.has(5)) {
    Value pastKey = n.in(4);
    past = pastKey ? dimOf(pastKey, 2) : 0;
    k = e.concat({pastKey, k}, 2);
    v = e.concat({n.in(5), v}, 2);
  }
  if (!k || !v || failed(n.out(1, k)) || failed(n.out(2, v)))
    return failure();
  k = repeatHeads(e, k, dimOf(q, 1));
  v = repeatHeads(e, v, dimOf(q, 1));
  double scale = n.f("scale", 1 / std::sqrt(double(dimOf(q, 3))));
  Value scores = k ? e.mul(e.matmul(q, e.transpose(k, {0, 1, 3, 2})), scale) : k;
  if (n.has(3))
    scores = e.add(scores, additiveMask(e, n.in(3), elementOf(q)));
  if (scores && n.i("is_causal", 0)) {
    auto square = shapeOf(scores).take_back(2);
    Value ahead = e.cmp(e.sub(e.iota(square, 1), e.iota(square, 0)), double(past), "gt");
    scores =
        e.select(ahead, e.like(scores, -std::numeric_limits<double>::infinity()), scores);
  }
  if (double cap = n.f("softcap", 0); cap > 0)
    scores = e.mul(e.un("tanh", e.mul(scores, 1 / cap)), cap);
  Value y = e.matmul(e.op("softmax", {scores}, {e.i64("axis", 3)}), v);
  if (y && flat)
    y = e.reshape(e.transpose(y, {0, 2, 1, 3}),
                  {dimOf(y, 0), dimOf(y, 2), dimOf(y, 1) * dimOf(y, 3)});
  return n.out(0, y);
}

/// Pairs (a, b) of the leading part of each head turn by an angle: (a cos - b sin, a sin
/// + b cos).
LogicalResult importRotary(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), cosine = n.in(1), sine = n.in(2);
  if (!x || !cosine || !sine)
    return failure();
  Ints original(shapeOf(x));
  bool flat = rankOf(x) == 3;
  x = splitHeads(e, x, n.i("num_heads", 0)); // [batch, heads, sequence, size]
  if (!x || rankOf(x) != 4)
    return failure();
  if (n.has(3)) { // rows of the caches by position: [batch, sequence, size / 2]
    cosine = e.gather(cosine, n.in(3), 0);
    sine = e.gather(sine, n.in(3), 0);
  }
  int64_t size = dimOf(x, 3), turned = n.i("rotary_embedding_dim", 0), half;
  turned = turned == 0 ? size : turned;
  half = turned / 2;
  if (!cosine || !sine || rankOf(cosine) != 3 || turned < 2 || turned > size ||
      turned % 2 || dimOf(cosine, 2) != half)
    return n.fail("the caches do not fit the operand");
  bool interleaved = n.i("interleaved", 0);
  Value part = e.sliceAxis(x, 3, 0, turned);
  Value a =
      interleaved ? e.sliceAxis(part, 3, 0, half, 2) : e.sliceAxis(part, 3, 0, half);
  Value b =
      interleaved ? e.sliceAxis(part, 3, 1, half, 2) : e.sliceAxis(part, 3, half, half);
  Value c = e.unsqueeze(cosine, 1), s = e.unsqueeze(sine, 1);
  Value real = e.sub(e.mul(a, c), e.mul(b, s)),
        imaginary = e.add(e.mul(a, s), e.mul(b, c));
  if (!real || !imaginary)
    return failure();
  Value y =
      interleaved
          ? e.reshape(e.concat({e.unsqueeze(real, 4), e.unsqueeze(imaginary, 4)}, 4),
                      shapeOf(part))
          : e.concat({real, imaginary}, 3);
  if (turned < size)
    y = e.concat({y, e.sliceAxis(x, 3, turned, size - turned)}, 3);
  return n.out(flat && y ? e.reshape(e.transpose(y, {0, 2, 1, 3}), original) : y);
}

} // namespace

void addAttention(OpTable &table) {
  table["Attention"] = importAttention;
  table["RotaryEmbedding"] = importRotary;
}

} // namespace sluice::frontend
