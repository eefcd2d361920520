// Attention and RotaryEmbedding of opset 23, decomposed.
#include "frontend/onnx/Attention.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>
#include <limits>

namespace sluice::frontend {

Value splitHeads(Emitter &e, Value x, int64_t heads) {
  if (!x || rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3 || heads < 1 || dimOf(x, 2) % heads != 0)
    return e.fail("the number of heads does not fit " + shapeText(shapeOf(x)));
  Ints shape = {dimOf(x, 0), dimOf(x, 1), heads, dimOf(x, 2) / heads};
  return e.transpose(e.reshape(x, shape), {0, 2, 1, 3});
}
Value mergeHeads(Emitter &e, Value x) {
  if (!x)
    return x;
  return e.reshape(e.transpose(x, {0, 2, 1, 3}),
                   {dimOf(x, 0), dimOf(x, 2), dimOf(x, 1) * dimOf(x, 3)});
}

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

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
  return e.select(mask, allowed, e.like(allowed, -infinity));
}

/// True for keys that a query may not see.
Value hidden(Emitter &e, llvm::ArrayRef<int64_t> square, const AttentionForm &form) {
  Value ahead = e.sub(e.iota(square, 1), e.iota(square, 0));
  Value later = e.cmp(ahead, double(form.past), "gt");
  if (form.window < 0)
    return later;
  return e.bin("or", later, e.cmp(ahead, double(form.past - form.window), "le"));
}

/// Softmax of scores [batch, heads, queries, keys] with one more score for each head that
/// belongs to no key: its share is lost.
Value softmaxWithSink(Emitter &e, Value s, Value sink) {
  if (!s || !sink)
    return {};
  if (shapeOf(sink) != llvm::ArrayRef<int64_t>({dimOf(s, 1)}))
    return e.fail("the sink has shape " + shapeText(shapeOf(sink)) +
                  ", expected one number for each of " + llvm::Twine(dimOf(s, 1)) +
                  " heads");
  sink = e.reshape(sink, {1, dimOf(s, 1), 1, 1});
  Value largest = e.max(e.reduce(s, "max", {3}, true), sink);
  Value powers = e.un("exp", e.sub(s, largest));
  Value lost = e.un("exp", e.sub(sink, largest));
  return e.div(powers, e.add(e.reduce(powers, "sum", {3}, true), lost));
}

} // namespace

Value attend(Emitter &e, Value q, Value k, Value v, const AttentionForm &form,
             Value *scores) {
  if (!q || !k || !v || rankOf(q) != 4 || rankOf(k) != 4 || rankOf(v) != 4)
    return e.fail("queries, keys and values do not have four dimensions");
  k = repeatHeads(e, k, dimOf(q, 1));
  v = repeatHeads(e, v, dimOf(q, 1));
  double scale = form.scale != 0 ? form.scale : 1 / std::sqrt(double(dimOf(q, 3)));
  Value s = k ? e.mul(e.matmul(q, e.transpose(k, {0, 1, 3, 2})), scale) : k;
  auto keep = [&](int stage) {
    if (scores && stage <= form.stage)
      *scores = s;
  };
  keep(0);
  auto cap = [&] {
    if (form.softcap > 0)
      s = e.mul(e.un("tanh", e.mul(s, 1 / form.softcap)), form.softcap);
  };
  if (form.capsFirst)
    cap();
  for (Value mask : form.masks)
    s = e.add(s, additiveMask(e, mask, elementOf(q)));
  if (!s)
    return {};
  if (form.causal)
    s = e.select(hidden(e, shapeOf(s).take_back(2), form), e.like(s, -infinity), s);
  keep(1);
  if (!form.capsFirst)
    cap();
  keep(2);
  s = form.sink ? softmaxWithSink(e, s, form.sink)
                : e.op("softmax", {s}, {e.i64("axis", 3)});
  keep(3);
  return e.matmul(s, v);
}

Value rotate(Emitter &e, Value x, Value cosine, Value sine, int64_t turned,
             bool interleaved) {
  if (!x || !cosine || !sine)
    return {};
  int64_t size = dimOf(x, 3), half = turned / 2;
  if (turned < 2 || turned > size || turned % 2 || rankOf(cosine) != 3 ||
      shapeOf(cosine) != shapeOf(sine) || dimOf(cosine, 2) < half)
    return e.fail("caches of " + shapeText(shapeOf(cosine)) + " do not fit heads of " +
                  llvm::Twine(size) + " elements of which " + llvm::Twine(turned) +
                  " turn");
  cosine = e.sliceAxis(cosine, 2, 0, half);
  sine = e.sliceAxis(sine, 2, 0, half);
  Value part = e.sliceAxis(x, 3, 0, turned);
  Value a =
      interleaved ? e.sliceAxis(part, 3, 0, half, 2) : e.sliceAxis(part, 3, 0, half);
  Value b =
      interleaved ? e.sliceAxis(part, 3, 1, half, 2) : e.sliceAxis(part, 3, half, half);
  Value c = e.unsqueeze(cosine, 1), s = e.unsqueeze(sine, 1);
  Value real = e.sub(e.mul(a, c), e.mul(b, s));
  Value imaginary = e.add(e.mul(a, s), e.mul(b, c));
  if (!real || !imaginary)
    return {};
  Value y =
      interleaved
          ? e.reshape(e.concat({e.unsqueeze(real, 4), e.unsqueeze(imaginary, 4)}, 4),
                      shapeOf(part))
          : e.concat({real, imaginary}, 3);
  return turned < size ? e.concat({y, e.sliceAxis(x, 3, turned, size - turned)}, 3) : y;
}

namespace {

LogicalResult importAttention(Node &n) {
  Emitter &e = n.e;
  Value q = n.in(0), k = n.in(1), v = n.in(2);
  if (!q || !k || !v)
    return failure();
  bool flat = rankOf(q) == 3;
  q = splitHeads(e, q, n.i("q_num_heads", 0));
  k = splitHeads(e, k, n.i("kv_num_heads", 0));
  v = splitHeads(e, v, n.i("kv_num_heads", 0));
  if (!q || !k || !v || rankOf(q) != 4 || rankOf(k) != 4 || rankOf(v) != 4)
    return failure();
  AttentionForm form;
  if (n.has(4) && n.has(5)) {
    Value pastKey = n.in(4);
    form.past = pastKey ? dimOf(pastKey, 2) : 0;
    k = e.concat({pastKey, k}, 2);
    v = e.concat({n.in(5), v}, 2);
  }
  if (!k || !v || failed(n.out(1, k)) || failed(n.out(2, v)))
    return failure();
  form.scale = n.f("scale", 0);
  form.softcap = n.f("softcap", 0);
  form.causal = n.i("is_causal", 0);
  form.stage = int(n.i("qk_matmul_output_mode", 0));
  if (n.has(3))
    form.masks.push_back(n.in(3));
  Value scores, y = attend(e, q, k, v, form, &scores);
  if (n.wants(3) && (!y || failed(n.out(3, scores))))
    return failure();
  return n.out(0, flat ? mergeHeads(e, y) : y);
}

LogicalResult importRotary(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), cosine = n.in(1), sine = n.in(2);
  if (!x || !cosine || !sine)
    return failure();
  bool flat = rankOf(x) == 3;
  x = splitHeads(e, x, n.i("num_heads", 0));
  if (!x || rankOf(x) != 4)
    return failure();
  if (n.has(3)) { // rows of the caches by position
    cosine = e.gather(cosine, n.in(3), 0);
    sine = e.gather(sine, n.in(3), 0);
  }
  int64_t turned = n.i("rotary_embedding_dim", 0);
  Value y =
      rotate(e, x, cosine, sine, turned ? turned : dimOf(x, 3), n.i("interleaved", 0));
  return n.out(flat ? mergeHeads(e, y) : y);
}

} // namespace

void addAttention(OpTable &table) {
  table["Attention"] = importAttention;
  table["RotaryEmbedding"] = importRotary;
}

} // namespace sluice::frontend
