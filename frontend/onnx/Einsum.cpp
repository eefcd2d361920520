// Einsum: operands are joined two by two from the left, each pair by one contraction.
#include "frontend/onnx/OpTable.h"

#include <map>

namespace sluice::frontend {

namespace {

/// A label is a letter, or 256 + i for dimension i (from the right) of the ellipsis.
using Labels = llvm::SmallVector<int, 8>;
struct Term {
  Value value;
  Labels labels;
};

bool has(const Labels &labels, int label) { return llvm::is_contained(labels, label); }

/// Labels of one operand; nothing if the text does not fit the rank.
std::optional<Labels> parseLabels(llvm::StringRef text, int64_t rank) {
  size_t dots = text.find("...");
  llvm::StringRef head = text.take_front(dots), tail;
  int64_t hidden = 0;
  if (dots != llvm::StringRef::npos) {
    tail = text.drop_front(dots + 3);
    hidden = rank - static_cast<int64_t>(head.size() + tail.size());
  }
  Labels labels(head.begin(), head.end());
  for (int64_t i = hidden - 1; i >= 0; --i)
    labels.push_back(256 + static_cast<int>(i));
  labels.append(tail.begin(), tail.end());
  bool letters =
      llvm::all_of(labels, [](int c) { return c >= 256 || llvm::isAlpha(char(c)); });
  if (hidden < 0 || !letters || static_cast<int64_t>(labels.size()) != rank)
    return std::nullopt;
  return labels;
}

/// Two dimensions of one label become their diagonal.
bool takeDiagonals(Emitter &e, Term &term) {
  for (size_t i = 0; i < term.labels.size(); ++i)
    for (size_t j = i + 1; j < term.labels.size(); ++j) {
      if (term.labels[i] != term.labels[j])
        continue;
      int64_t n = dimOf(term.value, i), rank = rankOf(term.value);
      if (dimOf(term.value, j) != n)
        return e.fail("a repeated label has two sizes"), false;
      Ints order, rest;
      Labels labels;
      for (int64_t d = 0; d < rank; ++d)
        if (d != int64_t(i) && d != int64_t(j))
          order.push_back(d), labels.push_back(term.labels[d]),
              rest.push_back(dimOf(term.value, d));
      order.append({int64_t(i), int64_t(j)});
      labels.push_back(term.labels[i]);
      rest.push_back(n * n);
      Value flat = e.reshape(e.transpose(term.value, order), rest);
      term.value = e.sliceAxis(flat, rest.size() - 1, 0, n, n + 1);
      term.labels = labels;
      return term.value && takeDiagonals(e, term);
    }
  return true;
}

/// Drops dimensions whose label nothing else needs, and those of size 1 that another
/// operand has in full.
void reduceAlone(Emitter &e, Term &term, llvm::function_ref<bool(int)> needed,
                 const std::map<int, int64_t> &sizes) {
  Ints sum;
  Labels labels;
  for (auto [axis, label] : llvm::enumerate(term.labels)) {
    bool stretched = dimOf(term.value, axis) == 1 && sizes.at(label) != 1;
    if (needed(label) && !stretched)
      labels.push_back(label);
    else
      sum.push_back(axis);
  }
  term.value = e.reduce(term.value, "sum", sum, /*keep=*/false);
  term.labels = labels;
}

Term join(Emitter &e, const Term &a, const Term &b,
          llvm::function_ref<bool(int)> neededLater) {
  Ints aBatch, bBatch, aSum, bSum;
  Labels batch, free;
  for (auto [i, label] : llvm::enumerate(a.labels)) {
    auto other = llvm::find(b.labels, label);
    if (other == b.labels.end()) {
      free.push_back(label);
      continue;
    }
    bool kept = neededLater(label);
    (kept ? aBatch : aSum).push_back(i);
    (kept ? bBatch : bSum).push_back(other - b.labels.begin());
    if (kept)
      batch.push_back(label);
  }
  for (int label : b.labels)
    if (!has(a.labels, label))
      free.push_back(label);
  batch.append(free.begin(), free.end());
  return {e.contract(a.value, b.value, aBatch, bBatch, aSum, bSum), batch};
}

/// Without an arrow: the ellipsis, then the labels that occur once, in alphabetical
/// order.
Labels implicitOutput(llvm::ArrayRef<Term> terms) {
  std::map<int, int> count;
  for (const Term &term : terms)
    for (int label : term.labels)
      ++count[label];
  Labels output;
  for (auto it = count.rbegin(); it != count.rend(); ++it)
    if (it->first >= 256)
      output.push_back(it->first);
  for (auto [label, times] : count)
    if (label < 256 && times == 1)
      output.push_back(label);
  return output;
}

LogicalResult importEinsum(Node &n) {
  Emitter &e = n.e;
  std::string equation = n.s("equation", "");
  llvm::erase(equation, ' ');
  auto [left, right] = llvm::StringRef(equation).split("->");
  bool arrow = llvm::StringRef(equation).contains("->");
  llvm::SmallVector<llvm::StringRef> texts;
  left.split(texts, ',');
  if (static_cast<int>(texts.size()) != n.inputs())
    return n.fail("equation '" + equation + "' does not fit " + llvm::Twine(n.inputs()) +
                  " operands");
  llvm::SmallVector<Term> terms;
  std::map<int, int64_t> sizes;
  int64_t hidden = 0;
  for (auto [i, text] : llvm::enumerate(texts)) {
    Value x = n.in(i);
    auto labels = x ? parseLabels(text, rankOf(x)) : std::nullopt;
    if (!labels)
      return n.fail("equation '" + equation + "' does not fit operand " + llvm::Twine(i));
    terms.push_back({x, *labels});
    for (auto [axis, label] : llvm::enumerate(*labels)) {
      int64_t &size = sizes.try_emplace(label, dimOf(x, axis)).first->second;
      if (size == 1)
        size = dimOf(x, axis);
      if (label >= 256)
        hidden = std::max<int64_t>(hidden, label - 255);
    }
    if (!takeDiagonals(e, terms.back()))
      return failure();
  }
  int64_t rank = hidden + right.size() - (right.contains("...") ? 3 : hidden);
  auto output =
      arrow ? parseLabels(right, rank) : std::optional<Labels>(implicitOutput(terms));
  if (!output || llvm::any_of(*output, [&](int label) { return !sizes.count(label); }))
    return n.fail("the output of equation '" + equation + "' is not valid");
  Term result;
  for (size_t i = 0; i < terms.size(); ++i) {
    auto later = [&](int label) {
      return has(*output, label) ||
             llvm::any_of(llvm::ArrayRef<Term>(terms).drop_front(i + 1),
                          [&](const Term &t) { return has(t.labels, label); });
    };
    reduceAlone(
        e, terms[i],
        [&](int label) { return later(label) || (i > 0 && has(result.labels, label)); },
        sizes);
    result = i == 0 ? terms[0] : join(e, result, terms[i], later);
    if (!result.value)
      return failure();
  }
  Ints permutation, shape;
  for (int label : *output) {
    auto found = llvm::find(result.labels, label);
    if (found == result.labels.end())
      return n.fail("the output of equation '" + equation + "' is not valid");
    permutation.push_back(found - result.labels.begin());
  }
  return n.out(e.transpose(result.value, permutation));
}

} // namespace

void addEinsum(OpTable &table) { table["Einsum"] = importEinsum; }

} // namespace sluice::frontend
