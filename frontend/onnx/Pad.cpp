// Pad in all its modes; negative amounts cut.
#include "frontend/onnx/OpTable.h"

#include <cmath>

namespace sluice::frontend {

namespace {

struct Padding {
  Ints low, high;
  double value = 0;
};

std::optional<Padding> readPadding(Node &n, Value x) {
  std::optional<Ints> pads;
  Padding p;
  p.value = n.f("value", 0);
  if (n.version < 11)
    pads = n.is(n.version < 2 ? "paddings" : "pads");
  else
    pads = n.ints(1);
  if (!pads) {
    n.e.fail("attribute 'pads' is missing");
    return std::nullopt;
  }
  if (n.version >= 11 && n.has(2)) {
    auto value = n.constant(2);
    if (!value || value->size() != 1) {
      n.e.fail("the constant value is not known");
      return std::nullopt;
    }
    p.value = value->isReal() ? value->reals[0] : double(value->integers[0]);
  }
  Ints axes = range(rankOf(x));
  if (n.version >= 18 && n.has(3)) {
    auto given = n.ints(3);
    if (!given)
      return std::nullopt;
    axes = *given;
  }
  if (pads->size() != 2 * axes.size()) {
    n.e.fail("expected two amounts per axis, found " + llvm::Twine(pads->size()));
    return std::nullopt;
  }
  p.low.assign(rankOf(x), 0);
  p.high.assign(rankOf(x), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = n.axis(axes[i], rankOf(x));
    int64_t low = (*pads)[i], high = (*pads)[axes.size() + i];
    if (!axis || std::abs(low) > int64_t(1) << 31 || std::abs(high) > int64_t(1) << 31) {
      n.e.fail("an amount is out of range");
      return std::nullopt;
    }
    p.low[*axis] = low, p.high[*axis] = high;
  }
  return p;
}

/// Where position `i` of the padded axis reads from.
int64_t source(llvm::StringRef mode, int64_t i, int64_t size) {
  if (mode == "edge")
    return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "wrap")
    return ((i % size) + size) % size;
  int64_t period =
      std::max<int64_t>(2 * (size - 1), 1); // reflect, without the edge twice
  int64_t folded = ((i % period) + period) % period;
  return folded < size ? folded : period - folded;
}

LogicalResult importPad(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto p = x ? readPadding(n, x) : std::nullopt;
  if (!p)
    return failure();
  for (int64_t i = 0; i < rankOf(x); ++i) { // negative amounts first
    int64_t from = std::max<int64_t>(-p->low[i], 0),
            cut = std::max<int64_t>(-p->high[i], 0);
    if (from + cut > dimOf(x, i))
      return n.fail("more is cut than there is");
    x = e.sliceAxis(x, i, from, dimOf(x, i) - from - cut);
    if (!x)
      return failure();
    p->low[i] = std::max<int64_t>(p->low[i], 0),
    p->high[i] = std::max<int64_t>(p->high[i], 0);
  }
  std::string mode = n.s("mode", "constant");
  if (mode == "constant")
    return n.out(e.pad(x, p->low, p->high, p->value));
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    return n.fail("mode '" + mode + "' is unknown");
  for (int64_t axis = 0; x && axis < rankOf(x); ++axis) {
    int64_t size = dimOf(x, axis), total = p->low[axis] + size + p->high[axis];
    if (total == size)
      continue;
    if (size == 0 || total > 1 << 26)
      return n.fail("cannot extend " + llvm::Twine(size) + " elements to " +
                    llvm::Twine(total));
    Ints index;
    for (int64_t i = -p->low[axis]; i < size + p->high[axis]; ++i)
      index.push_back(source(mode, i, size));
    x = e.gather(x, e.ints(index), axis);
  }
  return n.out(x);
}

} // namespace

void addPad(OpTable &table) { table["Pad"] = importPad; }

} // namespace sluice::frontend
