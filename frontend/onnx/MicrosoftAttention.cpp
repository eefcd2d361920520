// Attention and embeddings as ONNX Runtime's transformer optimiser writes them
// (com.microsoft; operators documented in ContribOperators.md).
#include "frontend/onnx/Attention.h"
#include "frontend/onnx/OpTable.h"

#include <array>

namespace sluice::frontend {

namespace {

/// 0 where a mask of integers is not 0, else `filtered`.
Value keepWhere(Emitter &e, Value mask, double filtered) {
  if (!mask)
    return mask;
  Value zero = e.splat(shapeOf(mask), e.f32(), 0);
  return e.select(e.cmp(mask, 0, "ne"), zero, e.like(zero, filtered));
}

/// A key mask as an addend to scores [batch, heads, queries, keys].
Value keyMask(Node &n, int i, int64_t batch, int64_t queries, int64_t keys) {
  Emitter &e = n.e;
  double filtered = n.f("mask_filter_value", -10000);
  Value mask = n.in(i);
  if (!mask)
    return {};
  auto shape = shapeOf(mask);
  if (shape == llvm::ArrayRef<int64_t>({batch})) { // lengths; keys behind are padding
    Value inside =
        e.cmp(e.cast(e.iota({1, keys}, 1), elementOf(mask)), e.unsqueeze(mask, 1), "lt");
    mask = e.cast(inside, elementOf(mask));
  }
  if (!mask)
    return {};
  if (shapeOf(mask) == llvm::ArrayRef<int64_t>({batch, keys}))
    return e.unsqueeze(e.unsqueeze(keepWhere(e, mask, filtered), 1), 1);
  if (shapeOf(mask) == llvm::ArrayRef<int64_t>({batch, queries, keys}))
    return e.unsqueeze(keepWhere(e, mask, filtered), 1);
  return e.fail("a key mask of shape " + shapeText(shape) +
                " is not supported yet, only "
                "[batch], [batch, keys] and [batch, queries, keys]");
}

/// Earlier keys and values, and the results that hold all of them.
LogicalResult addPast(Node &n, Value &k, Value &v, Value pastKey, Value pastValue,
                      AttentionForm &form) {
  if (!k || !v || !pastKey || !pastValue)
    return failure();
  form.past = dimOf(pastKey, 2);
  k = n.e.concat({pastKey, k}, 2);
  v = n.e.concat({pastValue, v}, 2);
  return success(k && v);
}

/// Pieces of the last dimension.
llvm::SmallVector<Value> splitLast(Emitter &e, Value x, llvm::ArrayRef<int64_t> sizes) {
  llvm::SmallVector<Value> parts;
  int64_t at = 0;
  for (int64_t size : sizes) {
    parts.push_back(x ? e.sliceAxis(x, rankOf(x) - 1, at, size) : x);
    at += size;
  }
  return parts;
}

LogicalResult importMsAttention(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1);
  int64_t heads = n.i("num_heads", 0);
  if (!x || !w || rankOf(x) != 3 || rankOf(w) != 2 || heads < 1)
    return n.fail("the operand or its weights do not fit");
  if (n.i("do_rotary", 0))
    return n.fail("do_rotary is not supported yet");
  Value all = e.matmul(x, w);
  if (n.has(2))
    all = e.add(all, n.in(2));
  Ints sizes = n.is("qkv_hidden_sizes").value_or(Ints(3, dimOf(w, 1) / 3));
  if (!all || sizes.size() != 3 || sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1 ||
      sizes[0] + sizes[1] + sizes[2] != dimOf(all, 2))
    return n.fail("qkv_hidden_sizes do not fit the weights");
  auto parts = splitLast(e, all, sizes);
  Value q = splitHeads(e, parts[0], heads), k = splitHeads(e, parts[1], heads),
        v = splitHeads(e, parts[2], heads);
  AttentionForm form;
  if (n.has(4)) { // [2, batch, heads, past, size]
    Value past = n.in(4);
    auto at = [&](int64_t i) {
      return past ? e.squeeze(e.sliceAxis(past, 0, i, 1), 0) : past;
    };
    if (failed(addPast(n, k, v, at(0), at(1), form)))
      return failure();
  }
  if (!q || !k || !v)
    return failure();
  if (n.wants(1) && failed(n.out(1, e.concat({e.unsqueeze(k, 0), e.unsqueeze(v, 0)}, 0))))
    return failure();
  form.scale = n.f("scale", 0);
  form.causal = n.i("unidirectional", 0);
  if (n.has(3))
    form.masks.push_back(keyMask(n, 3, dimOf(x, 0), dimOf(x, 1), dimOf(k, 2)));
  if (n.has(5))
    form.masks.push_back(n.in(5));
  return n.out(mergeHeads(e, attend(e, q, k, v, form)));
}

/// Queries, keys and values [batch, sequence, width], or packed in one operand.
std::array<Value, 3> readHeads(Node &n, int64_t heads) {
  Emitter &e = n.e;
  auto unpack = [&](Value packed, int64_t i) { // [batch, sequence, heads, parts, size]
    return e.transpose(e.squeeze(e.sliceAxis(packed, 3, i, 1), 3), {0, 2, 1, 3});
  };
  Value q = n.in(0);
  if (q && rankOf(q) == 5)
    return {unpack(q, 0), unpack(q, 1), unpack(q, 2)};
  Value k = n.in(1);
  if (k && rankOf(k) == 5)
    return {splitHeads(e, q, heads), unpack(k, 0), unpack(k, 1)};
  return {q, k, n.in(2)};
}

LogicalResult importMultiHeadAttention(Node &n) {
  Emitter &e = n.e;
  int64_t heads = n.i("num_heads", 0);
  auto x = readHeads(n, heads);
  if (!x[0] || !x[1] || !x[2] || heads < 1)
    return failure();
  if (n.has(3)) { // a bias over the three, one after the other
    Ints sizes;
    for (Value v : x) {
      if (rankOf(v) != 3)
        return n.fail("a bias on packed heads is not supported yet");
      sizes.push_back(dimOf(v, 2));
    }
    Value bias = n.in(3);
    if (!bias ||
        shapeOf(bias) != llvm::ArrayRef<int64_t>({sizes[0] + sizes[1] + sizes[2]}))
      return n.fail("the bias does not fit");
    auto parts = splitLast(e, bias, sizes);
    for (int i = 0; i < 3; ++i)
      x[i] = e.add(x[i], parts[i]);
  }
  for (Value &v : x)
    if (v = splitHeads(e, v, heads); !v)
      return failure();
  AttentionForm form;
  if (n.has(6) && n.has(7) && failed(addPast(n, x[1], x[2], n.in(6), n.in(7), form)))
    return failure();
  if (failed(n.out(1, x[1])) || failed(n.out(2, x[2])))
    return failure();
  form.scale = n.f("scale", 0);
  form.causal = n.i("unidirectional", 0);
  if (n.has(4))
    form.masks.push_back(keyMask(n, 4, dimOf(x[0], 0), dimOf(x[0], 2), dimOf(x[1], 2)));
  if (n.has(5))
    form.masks.push_back(n.in(5));
  return n.out(mergeHeads(e, attend(e, x[0], x[1], x[2], form)));
}

/// Rows of rotary caches at positions [batch or 1, sequence].
std::pair<Value, Value> anglesAt(Node &n, int cosine, int sine, Value positions) {
  return {n.e.gather(n.in(cosine), positions, 0), n.e.gather(n.in(sine), positions, 0)};
}

/// Earlier keys and values in a cache of fixed length: where each sample's new rows lie
/// in it follows from the sample's length, which is data.
class KeyCache {
public:
  /// `ends`: the last position of each sample. `length`: of the keys that come out.
  KeyCache(Emitter &e, Value ends, int64_t rows, int64_t length)
      : e(e), rows(rows), length(length) {
    Value last = e.reshape(e.cast(ends, e.i64Type()), {elementCount(shapeOf(ends)), 1});
    Value first = e.add(last, double(1 - rows));
    begins = first ? e.max(first, e.like(first, 0)) : first;
  }
  /// [batch, rows] of the new rows.
  Value positions() { return e.add(begins, e.iota({1, rows}, 1)); }

  /// The cache [batch, heads, earlier length, size] with the new rows in their places,
  /// and zeros behind.
  Value filled(Value cache, Value fresh) {
    if (!cache || !fresh || rankOf(cache) != 4 || dimOf(cache, 0) != dimOf(fresh, 0) ||
        dimOf(cache, 1) != dimOf(fresh, 1) || dimOf(cache, 3) != dimOf(fresh, 3) ||
        dimOf(cache, 0) != dimOf(begins, 0))
      return e.fail("the cache does not fit the keys and values");
    Ints wide = {dimOf(cache, 0), dimOf(cache, 1), length, dimOf(cache, 3)};
    auto spread = [&](Value x) {
      return e.broadcast(e.reshape(x, {wide[0], 1, length, 1}), wide);
    };
    Value row = e.sub(e.iota({1, length}, 1), begins);
    Value isOld = e.cmp(row, 0, "lt"), isLater = e.cmp(row, double(rows), "ge");
    row = e.min(e.max(row, e.like(row, 0)), e.like(row, double(rows - 1)));
    Value placed = e.op("gather_elements", {fresh, spread(row)}, {e.i64("axis", 2)});
    Value kept = e.pad(cache, {0, 0, 0, 0}, {0, 0, length - dimOf(cache, 2), 0}, 0);
    Value rest = e.select(spread(isLater), e.like(placed, 0), placed);
    return e.select(spread(isOld), kept, rest);
  }

  /// [batch, 1, rows, length]: true for keys up to a row, and inside its window.
  Value visible(int64_t window) {
    Value at = e.unsqueeze(positions(), 2), key = e.iota({1, 1, length}, 2);
    Value seen = e.cmp(key, at, "le");
    if (window >= 0)
      seen = e.bin("and", seen, e.cmp(key, e.add(at, double(-window)), "gt"));
    return e.unsqueeze(seen, 1);
  }

private:
  Emitter &e;
  int64_t rows, length;
  Value begins; // [batch, 1]: earlier rows of each sample
};

/// Keys of the cache when the operator is done: as many as the model says, else room for
/// all earlier and new ones.
int64_t cachedLength(Node &n, int64_t earlier, int64_t rows) {
  if (!n.has(6) || !n.importer.constantOf(n.scope, n.proto.input(6))) {
    n.importer.note("GroupQueryAttention",
                    "the total length is data: keys come out with room for " +
                        std::to_string(earlier) + " earlier and " + std::to_string(rows) +
                        " new ones; fix it with `values` for a cache of fixed length");
    return earlier + rows;
  }
  auto total = n.constant(6);
  bool isNumber = total && !total->isReal() && total->size() == 1;
  return std::max(earlier, isNumber ? total->integers[0] : earlier + rows);
}

/// Turns queries and keys by the angles of their positions.
void turn(Node &n, Value positions, Value &q, Value &k) {
  if (!n.i("do_rotary", 0))
    return;
  auto [cosine, sine] = anglesAt(n, 7, 8, n.has(9) ? n.in(9) : positions);
  bool isInterleaved = n.i("rotary_interleaved", 0);
  int64_t turned = cosine ? 2 * dimOf(cosine, 2) : 0;
  q = rotate(n.e, q, cosine, sine, turned, isInterleaved);
  k = rotate(n.e, k, cosine, sine, turned, isInterleaved);
}

/// What later versions of the operator added and is not built.
LogicalResult checkGroupQuery(Node &n) {
  constexpr std::pair<int, const char *> inputs[] = {{12, "k_scale"},
                                                     {13, "v_scale"},
                                                     {14, "q_norm_weight"},
                                                     {15, "k_norm_weight"},
                                                     {16, "query_seqlens"}};
  for (auto [number, name] : inputs)
    if (n.has(number))
      return n.fail(std::string(name) + " is not supported yet");
  if (n.i("causal", 1) != 1)
    return n.fail("attention that is not causal is not supported yet");
  for (const char *name : {"sliding_window_cache", "qk_output"})
    if (n.i(name, 0))
      return n.fail(std::string(name) + " is not supported yet");
  return success();
}

/// The given scores of each head, else 0 with `smooth_softmax`; null for neither.
mlir::FailureOr<Value> sinkOf(Node &n, int64_t heads, Type type) {
  if (!n.has(11))
    return n.i("smooth_softmax", 0) == 1 ? n.e.splat({heads}, type, 0) : Value();
  Value sink = n.in(11);
  if (!sink)
    return failure();
  return sink;
}

/// Without a cache positions count from 0. Sequences shorter than the batch's are padded
/// behind, where the causal mask hides them.
LogicalResult importGroupQueryAttention(Node &n) {
  Emitter &e = n.e;
  Value q = n.in(0), k, v;
  int64_t heads = n.i("num_heads", 0), own = n.i("kv_num_heads", 0);
  if (!q || heads < 1 || own < 1 || rankOf(q) != 3)
    return n.fail("the operand or its heads do not fit");
  if (failed(checkGroupQuery(n)))
    return failure();
  if (n.has(1)) {
    k = n.in(1), v = n.in(2);
  } else {
    int64_t size = dimOf(q, 2) / (heads + 2 * own);
    if (size * (heads + 2 * own) != dimOf(q, 2))
      return n.fail("the packed operand does not fit its heads");
    auto parts = splitLast(e, q, {heads * size, own * size, own * size});
    q = parts[0], k = parts[1], v = parts[2];
  }
  q = splitHeads(e, q, heads), k = splitHeads(e, k, own), v = splitHeads(e, v, own);
  if (!q || !k || !v)
    return failure();
  int64_t rows = dimOf(q, 2), window = n.i("local_window_size", -1);
  AttentionForm form;
  mlir::FailureOr<Value> sink = sinkOf(n, heads, elementOf(q));
  if (failed(sink))
    return failure();
  form.sink = *sink;
  Value pastKey = n.has(3) ? n.in(3) : Value();
  if (pastKey && (rankOf(pastKey) != 4 || !n.has(4) || !n.has(5)))
    return n.fail("a cache needs keys, values and lengths");
  if (pastKey && dimOf(pastKey, 2) != 0) {
    if (!n.in(5))
      return failure();
    KeyCache cache(e, n.in(5), rows, cachedLength(n, dimOf(pastKey, 2), rows));
    turn(n, cache.positions(), q, k);
    k = cache.filled(pastKey, k), v = cache.filled(n.in(4), v);
    form.masks.push_back(cache.visible(window));
  } else {
    turn(n, e.iota({1, rows}, 1), q, k);
    form.causal = true;
    form.window = window;
  }
  if (!q || !k || failed(n.out(1, k)) || failed(n.out(2, v)))
    return failure();
  if (n.has(10))
    form.masks.push_back(n.in(10));
  form.scale = n.f("scale", 0);
  form.softcap = n.f("softcap", 0);
  form.capsFirst = true;
  return n.out(mergeHeads(e, attend(e, q, k, v, form)));
}

LogicalResult importMsRotary(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), positions = n.in(1), caches = n.in(2);
  if (!x || !positions || !caches)
    return failure();
  if (n.i("is_packed_batching", 0) || n.f("scale", 1) != 1)
    return n.fail("packed batches and scales are not supported yet");
  bool flat = rankOf(x) == 3;
  int64_t turned = n.i("rotary_embedding_dim", 0), heads = n.i("num_heads", 0);
  turned = turned ? turned : 2 * dimOf(caches, rankOf(caches) - 1);
  if (flat && heads == 0)
    heads = dimOf(x, 2) / turned;
  x = splitHeads(e, x, heads);
  if (!x || rankOf(x) != 4)
    return failure();
  if (elementCount(shapeOf(positions)) == 1) // of the first element
    positions = e.add(e.reshape(positions, {1, 1}),
                      e.cast(e.iota({1, dimOf(x, 2)}, 1), elementOf(positions)));
  auto [cosine, sine] = anglesAt(n, 2, 3, positions);
  Value y = rotate(e, x, cosine, sine, turned, n.i("interleaved", 0));
  return n.out(flat ? mergeHeads(e, y) : y);
}

/// norm(word + position + segment), the count of tokens per row, and the sum.
LogicalResult importEmbedLayerNorm(Node &n) {
  Emitter &e = n.e;
  Value ids = n.in(0);
  if (!ids || rankOf(ids) != 2)
    return n.fail("input_ids do not have two dimensions");
  Value positions = n.has(8) ? n.in(8) : e.iota({1, dimOf(ids, 1)}, 1);
  Value sum = e.add(e.gather(n.in(2), ids, 0), e.gather(n.in(3), positions, 0));
  if (n.has(1) && n.has(4))
    sum = e.add(sum, e.gather(n.in(4), n.in(1), 0));
  if (!sum)
    return failure();
  Value y = e.op("layer_norm", {sum, n.in(5), n.in(6)},
                 {e.i64("axis", 2), e.f64("epsilon", n.f("epsilon", 1e-12f))});
  Type i32 = e.builder.getI32Type();
  Value tokens = n.has(7) ? e.reduce(e.cast(n.in(7), i32), "sum", {1}, false)
                          : e.splat({dimOf(ids, 0)}, i32, 0);
  if (failed(n.out(0, y)) || failed(n.out(1, tokens)))
    return failure();
  return n.out(2, sum);
}

} // namespace

void addMicrosoftAttention(OpTable &table) {
  table["Attention"] = importMsAttention;
  table["MultiHeadAttention"] = importMultiHeadAttention;
  table["GroupQueryAttention"] = importGroupQueryAttention;
  table["RotaryEmbedding"] = importMsRotary;
  table["EmbedLayerNormalization"] = importEmbedLayerNorm;
}

} // namespace sluice::frontend
