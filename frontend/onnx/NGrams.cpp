// TfIdfVectorizer: counts of known n-grams in rows of integers. It has no gradient.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

struct Grams {
  int64_t length = 0;
  std::vector<Ints> words; // each of `length`
  Ints places;             // in the result
};

/// The pool by length of its n-grams.
std::optional<std::vector<Grams>> readPool(Node &n) {
  auto pool = n.is("pool_int64s"), starts = n.is("ngram_counts"),
       places = n.is("ngram_indexes");
  if (!pool || !starts || !places) {
    n.e.fail("only a pool of integers is supported");
    return std::nullopt;
  }
  std::vector<Grams> all;
  size_t gram = 0;
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t length = int64_t(i) + 1, begin = (*starts)[i];
    int64_t end = i + 1 < starts->size() ? (*starts)[i + 1] : int64_t(pool->size());
    if (begin < 0 || end < begin || end > int64_t(pool->size()) ||
        (end - begin) % length) {
      n.e.fail("ngram_counts do not fit the pool");
      return std::nullopt;
    }
    Grams &grams = all.emplace_back();
    grams.length = length;
    for (int64_t at = begin; at < end; at += length, ++gram) {
      if (gram >= places->size() || (*places)[gram] < 0 ||
          (*places)[gram] >= int64_t(1) << 31)
        return n.e.fail("ngram_indexes do not fit the pool"), std::nullopt;
      grams.words.emplace_back(pool->begin() + at, pool->begin() + at + length);
      grams.places.push_back((*places)[gram]);
    }
  }
  return all;
}

/// How often each n-gram occurs in x [rows, columns] with `skip` elements between its
/// own: [rows, grams].
Value countGrams(Emitter &e, Value x, const Grams &grams, int64_t skip) {
  int64_t rows = dimOf(x, 0), starts = dimOf(x, 1) - (grams.length - 1) * (skip + 1);
  int64_t count = int64_t(grams.words.size());
  if (starts < 1)
    return {};
  Value match;
  for (int64_t k = 0; k < grams.length; ++k) {
    Ints column;
    for (const Ints &word : grams.words)
      column.push_back(word[k]);
    Value seen = e.reshape(e.sliceAxis(x, 1, k * (skip + 1), starts), {rows, starts, 1});
    Value same =
        e.cmp(seen, e.cast(e.reshape(e.ints(column), {1, 1, count}), elementOf(x)), "eq");
    match = match ? e.bin("and", match, same) : same;
  }
  return e.reduce(e.cast(match, e.f32()), "sum", {1}, false);
}

LogicalResult importTfIdf(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto pool = readPool(n);
  int64_t least = n.i("min_gram_length", 1), most = n.i("max_gram_length", 1);
  int64_t skips = n.i("max_skip_count", 0);
  std::string mode = n.s("mode", "TF");
  if (!x || !pool)
    return failure();
  if (isFloat(x) || rankOf(x) < 1 || rankOf(x) > 2 || skips < 0 || skips > 1000 ||
      (mode != "TF" && mode != "IDF" && mode != "TFIDF"))
    return n.fail("the operand or an attribute is out of range");
  bool flat = rankOf(x) == 1;
  x = flat ? e.unsqueeze(x, 0) : x;
  int64_t width = 0;
  for (const Grams &grams : *pool)
    for (int64_t place : grams.places)
      width = std::max(width, place + 1);
  Value total = e.splat({dimOf(x, 0), width}, e.f32(), 0);
  auto weights = n.fs("weights");
  int64_t gram = 0;
  for (const Grams &grams : *pool) {
    std::vector<double> factors;
    for (size_t i = 0; i < grams.words.size(); ++i, ++gram)
      factors.push_back(gram < int64_t(weights.size()) ? weights[gram] : 1);
    // An n-gram of one element has nothing to skip.
    int64_t last = grams.length == 1 ? 0 : skips;
    for (int64_t skip = 0; skip <= last; ++skip) {
      bool wanted = grams.length >= least && grams.length <= most && !grams.words.empty();
      Value counts = wanted ? countGrams(e, x, grams, skip) : Value();
      if (counts)
        total = e.add(total, e.op("scatter_add", {e.ints(grams.places), counts},
                                  {e.i64("size", width), e.i64("axis", 1)}));
    }
    if (mode == "TF" || grams.words.empty())
      continue;
    HostTensor factor = HostTensor::zeros(
        mlir::RankedTensorType::get({int64_t(factors.size())}, e.f32()));
    factor.reals = factors;
    Value own = e.op("scatter_add", {e.ints(grams.places), e.constant(factor)},
                     {e.i64("size", width), e.i64("axis", 0)});
    Value here =
        e.op("scatter_add",
             {e.ints(grams.places), e.splat({int64_t(factors.size())}, e.f32(), 1)},
             {e.i64("size", width), e.i64("axis", 0)});
    Value present = mode == "IDF" ? e.cast(e.cmp(total, 0, "gt"), e.f32()) : total;
    total = e.select(e.cmp(here, 0, "gt"), e.mul(present, own), total);
  }
  return n.out(flat ? e.squeeze(total, 0) : total);
}

} // namespace

void addNGrams(OpTable &table) { table["TfIdfVectorizer"] = importTfIdf; }

} // namespace sluice::frontend
