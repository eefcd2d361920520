// Operators whose result has a shape that depends on data: computed when compiling where
// the data is known, refused with what would help where not.
#include "frontend/onnx/OpTable.h"

#include <map>

namespace sluice::frontend {

namespace {

using Row = std::vector<double>;

/// Slices of a tensor along an axis, each as numbers in order.
std::vector<Row> slicesOf(const HostTensor &x, int64_t axis) {
  int64_t outer = elementCount(llvm::ArrayRef<int64_t>(x.shape).take_front(axis));
  int64_t size = x.shape[axis], inner = outer * size == 0 ? 0 : x.size() / (outer * size);
  std::vector<Row> rows(size);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < inner; ++j) {
        int64_t at = (o * size + i) * inner + j;
        rows[i].push_back(x.isReal() ? x.reals[at] : double(x.integers[at]));
      }
  return rows;
}

struct Groups {
  Ints first, inverse, counts; // per group, per row, per group
};
Groups groupsOf(const std::vector<Row> &rows, bool sorted) {
  std::map<Row, int64_t> seen; // in sorted order
  Groups found;
  for (auto [i, row] : llvm::enumerate(rows)) {
    auto [at, isNew] = seen.try_emplace(row, int64_t(found.first.size()));
    if (isNew) {
      found.first.push_back(int64_t(i));
      found.counts.push_back(0);
    }
    ++found.counts[at->second];
    found.inverse.push_back(at->second);
  }
  if (!sorted)
    return found;
  Groups ordered = found;
  Ints place(found.first.size());
  int64_t next = 0;
  for (auto &[row, group] : seen) {
    ordered.first[next] = found.first[group];
    ordered.counts[next] = found.counts[group];
    place[group] = next++;
  }
  for (int64_t &group : ordered.inverse)
    group = place[group];
  return ordered;
}

LogicalResult importUnique(Node &n) {
  Emitter &e = n.e;
  auto known = n.maybeConstant(0);
  Value x = n.in(0);
  if (!known || !x)
    return n.fail("the number of distinct elements depends on data, and shapes must be "
                  "known when compiling; fix its operand by `values`, or count over a "
                  "known range instead (a bound on the number of classes: OneHot and "
                  "ReduceSum)");
  int64_t axis = 0;
  if (n.hasAttr("axis")) {
    auto given = n.axis(n.i("axis", 0), rankOf(x));
    if (!given)
      return failure();
    axis = *given;
  } else {
    known->shape = {known->size()};
    x = e.reshape(x, known->shape);
  }
  Groups groups = groupsOf(slicesOf(*known, axis), n.i("sorted", 1));
  if (failed(n.out(0, e.gather(x, e.ints(groups.first), axis))) ||
      failed(n.out(1, e.ints(groups.first))) || failed(n.out(2, e.ints(groups.inverse))))
    return failure();
  return n.out(3, e.ints(groups.counts));
}

struct Box {
  double low[2], high[2];
  double area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};
Box boxOf(const double *v, bool centred) {
  if (centred) // x, y, width, height
    return {{v[1] - v[3] / 2, v[0] - v[2] / 2}, {v[1] + v[3] / 2, v[0] + v[2] / 2}};
  return {{std::min(v[0], v[2]), std::min(v[1], v[3])},
          {std::max(v[0], v[2]), std::max(v[1], v[3])}};
}
double overlap(const Box &a, const Box &b) {
  double shared = 1;
  for (int i : {0, 1})
    shared *=
        std::max(0.0, std::min(a.high[i], b.high[i]) - std::max(a.low[i], b.low[i]));
  double all = a.area() + b.area() - shared;
  return all > 0 ? shared / all : 0;
}

struct Suppression {
  int64_t most = 0;
  double overlap = 0;
  std::optional<double> score;
};
/// Boxes by falling score that overlap no better one too much.
Ints survivors(const std::vector<Box> &boxes, llvm::ArrayRef<double> scores,
               const Suppression &limits) {
  Ints order = range(int64_t(boxes.size())), kept;
  llvm::sort(order, [&](int64_t a, int64_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  for (int64_t i : order) {
    if (int64_t(kept.size()) >= limits.most)
      break;
    bool low = limits.score && scores[i] <= *limits.score;
    bool covered = llvm::any_of(
        kept, [&](int64_t k) { return overlap(boxes[i], boxes[k]) > limits.overlap; });
    if (!low && !covered)
      kept.push_back(i);
  }
  return kept;
}

std::optional<double> scalar(Node &n, int i) {
  auto tensor = n.maybeConstant(i);
  if (!tensor || tensor->size() != 1)
    return std::nullopt;
  return tensor->isReal() ? tensor->reals[0] : double(tensor->integers[0]);
}

LogicalResult importNonMaxSuppression(Node &n) {
  auto boxes = n.maybeConstant(0), scores = n.maybeConstant(1);
  if (!boxes || !scores || (n.has(2) && !scalar(n, 2)) || (n.has(3) && !scalar(n, 3)) ||
      (n.has(4) && !scalar(n, 4)))
    return n.fail(
        "the number of boxes it keeps depends on data, and shapes must be known "
        "when compiling; it has no gradient: end the model before it and select "
        "boxes outside, fix its operands by `values`, or keep a bounded number "
        "by TopK");
  if (boxes->shape.size() != 3 || scores->shape.size() != 3 || boxes->shape[2] != 4 ||
      boxes->shape[0] != scores->shape[0] || boxes->shape[1] != scores->shape[2])
    return n.fail("boxes and scores do not fit");
  Suppression limits;
  limits.most = int64_t(scalar(n, 2).value_or(0));
  limits.overlap = scalar(n, 3).value_or(0);
  limits.score = scalar(n, 4);
  int64_t count = boxes->shape[1], classes = scores->shape[1];
  Ints picked;
  for (int64_t b = 0; b < boxes->shape[0]; ++b) {
    std::vector<Box> these;
    for (int64_t i = 0; i < count; ++i)
      these.push_back(
          boxOf(boxes->reals.data() + (b * count + i) * 4, n.i("center_point_box", 0)));
    for (int64_t c = 0; c < classes; ++c) {
      llvm::ArrayRef<double> own(scores->reals.data() + (b * classes + c) * count,
                                 size_t(count));
      for (int64_t i : survivors(these, own, limits))
        picked.append({b, c, i});
    }
  }
  return n.out(n.e.reshape(n.e.ints(picked), {int64_t(picked.size()) / 3, 3}));
}

} // namespace

void addKnown(OpTable &table) {
  table["Unique"] = importUnique;
  table["NonMaxSuppression"] = importNonMaxSuppression;
}

} // namespace sluice::frontend
