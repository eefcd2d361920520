// Positions of maxima, and what is put back at them.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Window.h"

#include <limits>

namespace sluice::frontend {

namespace {

/// For each window and each position in it: the element of the plane, or -1 in the
/// padding.
std::vector<int64_t> windowTable(const Window &w, llvm::ArrayRef<int64_t> spatial,
                                 llvm::ArrayRef<int64_t> output) {
  int64_t windows = elementCount(output), positions = elementCount(w.kernel);
  std::vector<int64_t> table;
  for (int64_t o = 0; o < windows; ++o)
    for (int64_t k = 0; k < positions; ++k) {
      int64_t restO = o, restK = k, at = 0, stride = 1;
      bool inside = true;
      for (size_t d = spatial.size(); d-- > 0;) {
        int64_t i = restO % output[d] * w.strides[d] - w.begin[d] +
                    restK % w.kernel[d] * w.dilations[d];
        inside &= i >= 0 && i < spatial[d];
        at += inside ? i * stride : 0;
        stride *= spatial[d];
        restO /= output[d];
        restK /= w.kernel[d];
      }
      table.push_back(inside ? at : -1);
    }
  return table;
}

/// Element of a plane counted with the first spatial dimension fastest (storage_order 1).
int64_t columnMajor(int64_t at, llvm::ArrayRef<int64_t> spatial) {
  int64_t result = 0, stride = 1;
  Ints index(spatial.size());
  for (size_t d = spatial.size(); d-- > 0; at /= spatial[d])
    index[d] = at % spatial[d];
  for (size_t d = 0; d < spatial.size(); ++d) {
    result += index[d] * stride;
    stride *= spatial[d];
  }
  return result;
}

} // namespace

/// Windows as rows of a gathered table; the first maximum of each gives its place.
Value maxPoolIndices(Node &n, Value x, const Window &w, llvm::ArrayRef<int64_t> output) {
  Emitter &e = n.e;
  auto shape = shapeOf(x), spatial = shape.drop_front(2);
  int64_t windows = elementCount(output), positions = elementCount(w.kernel);
  int64_t planes = shape[0] * shape[1], plane = elementCount(spatial);
  if (elementCount({windows, positions}) > foldLarge || plane == 0)
    return e.fail("the result 'Indices' of so many windows is not supported");
  std::vector<int64_t> table = windowTable(w, spatial, output);
  Ints read, places;
  for (int64_t at : table) {
    read.push_back(at < 0 ? plane
                          : at); // the padding: one element of -inf behind the plane
    places.push_back(at < 0                         ? 0
                     : n.i("storage_order", 0) == 1 ? columnMajor(at, spatial)
                                                    : at);
  }
  Value rows = e.pad(e.reshape(x, {planes, plane}), {0, 0}, {0, 1},
                     -std::numeric_limits<double>::infinity());
  Value seen = e.reshape(e.gather(rows, e.ints(read), 1), {planes, windows, positions});
  Value best = e.op("argmax", {seen}, {e.i64("axis", 2)}); // [planes, windows]
  if (!best)
    return {};
  Value entry = e.add(best, e.mul(e.iota({planes, windows}, 1), double(positions)));
  Value index = e.add(e.gather(e.ints(places), entry, 0),
                      e.mul(e.iota({planes, windows}, 0), double(plane)));
  Ints full = {shape[0], shape[1]};
  full.append(output.begin(), output.end());
  return e.reshape(index, full);
}

namespace {

/// Zeros with the values at their indices (which count over the shape MaxPool had).
LogicalResult importMaxUnpool(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), indices = n.in(1);
  if (!x || !indices || rankOf(x) < 3 || shapeOf(x) != shapeOf(indices))
    return n.fail("operands have shapes that do not fit");
  auto spatial = shapeOf(x).drop_front(2);
  auto w = readWindow(n, spatial, std::nullopt);
  if (!w)
    return failure();
  Ints pooled(shapeOf(x).take_front(2));
  for (size_t i = 0; i < spatial.size(); ++i) {
    if (elementCount({spatial[i], w->strides[i]}) > maxElements)
      return n.fail("the output would be too large");
    pooled.push_back((spatial[i] - 1) * w->strides[i] + w->extent(i) - w->begin[i] -
                     w->end[i]);
  }
  Ints shape = pooled;
  if (n.has(2)) {
    auto asked = n.ints(2);
    if (!asked || asked->size() != shape.size())
      return n.fail("the output shape is not known");
    shape = *asked;
  }
  for (size_t i = 0; i < shape.size(); ++i)
    if (pooled[i] < 1 || shape[i] < pooled[i] || (i < 2 && shape[i] != pooled[i]))
      return n.fail("the output shape does not fit");
  int64_t count = elementCount(shapeOf(x));
  Value zeros = e.splat({elementCount(pooled)}, elementOf(x), 0);
  Value y = e.op("scatter_elements",
                 {zeros, e.reshape(indices, {count}), e.reshape(x, {count})},
                 {e.i64("axis", 0)});
  Ints low(shape.size(), 0), high;
  for (size_t i = 0; i < shape.size(); ++i)
    high.push_back(shape[i] - pooled[i]);
  return n.out(e.pad(e.reshape(y, pooled), low, high, 0));
}

} // namespace

void addPoolIndices(OpTable &table) { table["MaxUnpool"] = importMaxUnpool; }

} // namespace sluice::frontend
