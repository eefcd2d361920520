// Operators that cut images into pieces or put them together: CenterCropPad, Col2Im.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

LogicalResult importCenterCropPad(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto sizes = n.ints(1);
  if (!x || !sizes)
    return failure();
  Ints axes = n.is("axes").value_or(range(rankOf(x)));
  if (axes.size() != sizes->size())
    return n.fail("expected one size per axis");
  Ints low(rankOf(x), 0), high(rankOf(x), 0);
  for (auto [i, given] : llvm::enumerate(axes)) {
    auto axis = n.axis(given, rankOf(x));
    int64_t wanted = (*sizes)[i];
    if (!axis || wanted < 0 || wanted > int64_t(1) << 31)
      return n.fail("a size is out of range");
    int64_t had = dimOf(x, *axis),
            extra = std::max<int64_t>(had, wanted) - std::min<int64_t>(had, wanted);
    if (wanted < had) {
      x = e.sliceAxis(x, *axis, extra / 2, wanted);
    } else {
      low[*axis] = extra / 2;
      high[*axis] = extra - extra / 2;
    }
    if (!x)
      return failure();
  }
  return n.out(e.pad(x, low, high, 0));
}

struct Columns {
  Ints image, block, dilations, begin, strides, counts;
};
std::optional<Columns> readColumns(Node &n) {
  auto image = n.ints(1), block = n.ints(2);
  if (!image || !block)
    return std::nullopt;
  size_t axes = image->size();
  Ints ones(axes, 1);
  Ints pads = n.is("pads").value_or(Ints(2 * axes, 0));
  Columns c{*image,
            *block,
            n.is("dilations").value_or(ones),
            {},
            n.is("strides").value_or(ones),
            {}};
  if (axes == 0 || block->size() != axes || c.dilations.size() != axes ||
      pads.size() != 2 * axes || c.strides.size() != axes)
    return n.e.fail("its attributes do not have one element per axis"), std::nullopt;
  c.begin.assign(pads.begin(), pads.begin() + int64_t(axes));
  for (size_t i = 0; i < axes; ++i) {
    for (int64_t v : {c.image[i], c.block[i], c.dilations[i], c.strides[i]})
      if (v < 1 || v > int64_t(1) << 24)
        return n.e.fail("a size or attribute is out of range"), std::nullopt;
    int64_t room =
        c.image[i] + pads[i] + pads[axes + i] - (c.dilations[i] * (c.block[i] - 1) + 1);
    if (room < 0)
      return n.e.fail("a block is larger than the image"), std::nullopt;
    c.counts.push_back(room / c.strides[i] + 1);
  }
  return c;
}

/// Where in the image each element of each block lies; out of range where it lies
/// outside.
Ints placesOf(const Columns &c) {
  int64_t total = elementCount(c.image), blocks = elementCount(c.counts);
  Ints places;
  for (int64_t k = 0; k < elementCount(c.block); ++k)
    for (int64_t b = 0; b < blocks; ++b) {
      int64_t inBlock = k, at = b, place = 0, stride = 1;
      bool inside = true;
      for (size_t i = c.image.size(); i-- > 0;) {
        int64_t p = at % c.counts[i] * c.strides[i] - c.begin[i] +
                    inBlock % c.block[i] * c.dilations[i];
        inside &= p >= 0 && p < c.image[i];
        place += p * stride;
        stride *= c.image[i];
        at /= c.counts[i];
        inBlock /= c.block[i];
      }
      places.push_back(inside ? place : total);
    }
  return places;
}

/// The adjoint of cutting an image into overlapping blocks: sums what overlaps.
LogicalResult importCol2Im(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto c = readColumns(n);
  if (!x || !c)
    return failure();
  int64_t block = elementCount(c->block), blocks = elementCount(c->counts);
  if (rankOf(x) != 3 || dimOf(x, 1) % block || dimOf(x, 2) != blocks)
    return n.fail("an operand of " + shapeText(shapeOf(x)) + " does not fit " +
                  llvm::Twine(blocks) + " blocks of " + llvm::Twine(block) + " elements");
  if (block > (int64_t(1) << 26) / std::max<int64_t>(blocks, 1))
    return n.fail("more than 2^26 block elements are not supported");
  int64_t channels = dimOf(x, 1) / block;
  Value rows = e.reshape(x, {dimOf(x, 0) * channels, block * blocks});
  Value y = e.op("scatter_add", {e.ints(placesOf(*c)), rows},
                 {e.i64("size", elementCount(c->image)), e.i64("axis", 1)});
  Ints shape = {dimOf(x, 0), channels};
  shape.append(c->image.begin(), c->image.end());
  return n.out(e.reshape(y, shape));
}

} // namespace

void addBlocks(OpTable &table) {
  table["CenterCropPad"] = importCenterCropPad;
  table["Col2Im"] = importCol2Im;
}

} // namespace sluice::frontend
