// Regions of interest: RoiAlign reads interpolated samples, MaxRoiPool whole windows.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>

namespace sluice::frontend {

namespace {

/// The two neighbours of samples along one axis and their weights, all [R, samples].
struct Neighbours {
  Value index[2], weight[2];
};

Neighbours neighbours(Emitter &e, Value at, int64_t size) {
  Value inside =
      e.bin("and", e.cmp(at, -1, "ge"), e.cmp(at, double(size), "le")); // else 0
  Value held = clamp(e, at, 0, double(size - 1)), low = e.un("floor", held);
  Value part = e.sub(held, low), none = e.like(part, 0);
  Value high = clamp(e, e.add(low, 1), 0, double(size - 1));
  return {{e.cast(low, e.i64Type()), e.cast(high, e.i64Type())},
          {e.select(inside, e.sub(1, part), none), e.select(inside, part, none)}};
}

struct RoiAlign {
  Emitter &e;
  Value table; // [N * H * W, C]
  int64_t height, width, outHeight, outWidth;
  double scale;
  bool halfPixel, largest;

  /// Where samples lie along one axis: [R, out * grid].
  Value positions(Value rois, int64_t axis, int64_t out, int64_t grid) const {
    double offset = halfPixel ? -0.5 : 0;
    Value start = e.add(e.mul(e.sliceAxis(rois, 1, axis, 1), scale), offset);
    Value end = e.add(e.mul(e.sliceAxis(rois, 1, 2 + axis, 1), scale), offset);
    Value length = e.sub(end, start);
    if (!halfPixel)
      length = positiveOr(e, e.add(length, -1), e.like(length, 0)),
      length = e.add(length, 1);
    if (!length)
      return {};
    Value step = e.cast(e.iota({1, out * grid}, 1), elementOf(rois));
    step = e.mul(e.add(step, 0.5), 1.0 / double(grid * out));
    return e.add(start, e.mul(length, step));
  }

  /// [R, out height, out width, C] of regions with a grid of samples in each bin.
  Value run(Value rois, Value batch, int64_t gridY, int64_t gridX) const {
    int64_t regions = dimOf(rois, 0), channels = dimOf(table, 1);
    Value at[2] = {positions(rois, 1, outHeight, gridY),
                   positions(rois, 0, outWidth, gridX)};
    if (!at[0] || !at[1])
      return {};
    Neighbours y = neighbours(e, at[0], height), x = neighbours(e, at[1], width);
    Value image = e.mul(e.reshape(e.cast(batch, e.i64Type()), {regions, 1, 1}),
                        double(height * width));
    Value sum;
    for (int corner = 0; corner < 4; ++corner) {
      int i = corner / 2, j = corner % 2;
      Value row = e.add(image, e.mul(e.unsqueeze(y.index[i], 2), double(width)));
      Value taken = e.gather(table, e.add(row, e.unsqueeze(x.index[j], 1)), 0);
      Value weight = e.mul(e.unsqueeze(y.weight[i], 2), e.unsqueeze(x.weight[j], 1));
      if (!taken || !weight)
        return {};
      Value part = e.mul(taken, e.unsqueeze(weight, 3));
      sum = !sum ? part : largest ? e.max(sum, part) : e.add(sum, part);
    }
    sum = e.reshape(sum, {regions, outHeight, gridY, outWidth, gridX, channels});
    return largest ? e.reduce(sum, "max", {2, 4}, false) : e.mean(sum, {2, 4}, false);
  }
};

/// Samples per bin of a region, where the model leaves them to its size.
int64_t gridOf(const RoiAlign &r, const HostTensor &rois, int64_t region, int64_t axis) {
  double start = rois.reals[region * 4 + axis], end = rois.reals[region * 4 + 2 + axis];
  double length = (end - start) * r.scale;
  if (!r.halfPixel)
    length = std::max(length, 1.0);
  double grid = std::ceil(length / double(axis == 1 ? r.outHeight : r.outWidth));
  return grid >= 0 && grid < 1e4 ? int64_t(grid) : -1;
}

Value adaptive(Node &n, const RoiAlign &r, Value rois, Value batch) {
  Emitter &e = n.e;
  auto known = n.maybeConstant(1);
  if (!known || !known->isReal())
    return e.fail("with sampling_ratio 0 the number of samples depends on the boxes; "
                  "export it with a sampling_ratio above 0, or fix the boxes by "
                  "`values`");
  llvm::SmallVector<Value> parts;
  for (int64_t i = 0; i < dimOf(rois, 0); ++i) {
    int64_t gridY = gridOf(r, *known, i, 1), gridX = gridOf(r, *known, i, 0);
    if (gridY < 0 || gridX < 0)
      return e.fail("box " + llvm::Twine(i) + " is out of range");
    Value roi = e.sliceAxis(rois, 0, i, 1), image = e.sliceAxis(batch, 0, i, 1);
    Ints empty = {1, r.outHeight, r.outWidth, dimOf(r.table, 1)};
    parts.push_back(gridY && gridX ? r.run(roi, image, gridY, gridX)
                                   : e.splat(empty, elementOf(r.table), 0));
  }
  return parts.empty() ? e.fail("there are no boxes") : e.concat(parts, 0);
}

/// [N, C, H, W] as rows of channels.
Value channelRows(Emitter &e, Value x) {
  return e.reshape(e.transpose(x, {0, 2, 3, 1}),
                   {dimOf(x, 0) * dimOf(x, 2) * dimOf(x, 3), dimOf(x, 1)});
}

/// Bins and samples are unrolled, so their number has a limit.
bool outside(int64_t value, int64_t low) { return value < low || value > 10000; }

LogicalResult importRoiAlign(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), rois = n.in(1), batch = n.in(2);
  if (!x || !rois || !batch)
    return failure();
  if (rankOf(x) != 4 || rankOf(rois) != 2 || dimOf(rois, 1) != 4 || rankOf(batch) != 1 ||
      dimOf(batch, 0) != dimOf(rois, 0) || elementCount(shapeOf(x)) == 0)
    return n.fail("boxes of " + shapeText(shapeOf(rois)) + " do not fit an operand " +
                  shapeText(shapeOf(x)));
  std::string mode = n.s("mode", "avg");
  std::string kind = n.s("coordinate_transformation_mode",
                         n.version < 16 ? "output_half_pixel" : "half_pixel");
  int64_t height = n.i("output_height", 1), width = n.i("output_width", 1);
  int64_t ratio = n.i("sampling_ratio", 0);
  if ((mode != "avg" && mode != "max") || outside(height, 1) || outside(width, 1) ||
      outside(ratio, 0))
    return n.fail("an attribute is out of range");
  RoiAlign r{e,     channelRows(e, x),       dimOf(x, 2),          dimOf(x, 3),  height,
             width, n.f("spatial_scale", 1), kind == "half_pixel", mode == "max"};
  Value y = ratio > 0 ? r.run(rois, batch, ratio, ratio) : adaptive(n, r, rois, batch);
  return n.out(y ? e.transpose(y, {0, 3, 1, 2}) : y);
}

/// Element rows [first, last) of bin `i` of `count`, for a region that starts at `start`.
struct Bin {
  int64_t first, last;
};
Bin binOf(double start, double length, int64_t i, int64_t count, int64_t size) {
  double step = length / double(count);
  auto limit = [&](double v) { return v > 0 ? int64_t(std::min(v, double(size))) : 0; };
  return {limit(std::floor(double(i) * step) + start),
          limit(std::ceil(double(i + 1) * step) + start)};
}

/// The places of each bin, repeated to a common number; whether it has any.
struct Bins {
  std::vector<Ints> places;
  std::vector<int64_t> filled;
};
Bins binsOf(const HostTensor &rois, llvm::ArrayRef<int64_t> shape,
            llvm::ArrayRef<int64_t> out, double scale) {
  Bins bins;
  for (int64_t r = 0; r < rois.shape[0]; ++r) {
    const double *roi = rois.reals.data() + r * 5;
    double x = std::round(roi[1] * scale), y = std::round(roi[2] * scale);
    double w = std::max(std::round(roi[3] * scale) - x + 1, 1.0);
    double h = std::max(std::round(roi[4] * scale) - y + 1, 1.0);
    auto image = static_cast<int64_t>(roi[0]) * shape[2] * shape[3];
    for (int64_t i = 0; i < out[0]; ++i)
      for (int64_t j = 0; j < out[1]; ++j) {
        Bin rows = binOf(y, h, i, out[0], shape[2]),
            columns = binOf(x, w, j, out[1], shape[3]);
        Ints places;
        for (int64_t a = rows.first; a < rows.last; ++a)
          for (int64_t b = columns.first; b < columns.last; ++b)
            places.push_back(image + a * shape[3] + b);
        bins.filled.push_back(!places.empty());
        bins.places.push_back(places);
      }
  }
  return bins;
}

bool areInside(const HostTensor &rois, int64_t images) {
  for (int64_t r = 0; r < rois.shape[0]; ++r)
    for (int64_t k = 0; k < 5; ++k) {
      double value = rois.reals[r * 5 + k], limit = k ? 1e9 : double(images) - 0.5;
      if (!(value >= (k ? -1e9 : 0) && value <= limit))
        return false;
    }
  return true;
}

LogicalResult importMaxRoiPool(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto rois = n.maybeConstant(1);
  auto out = n.is("pooled_shape");
  if (!x || rankOf(x) != 4 || !out || out->size() != 2 || outside((*out)[0], 1) ||
      outside((*out)[1], 1))
    return n.fail("the operand or pooled_shape does not fit");
  if (!rois)
    return n.fail("the size of its windows depends on the boxes, operand 1; fix them by "
                  "`values`, or use RoiAlign with a sampling_ratio");
  if (rois->shape.size() != 2 || rois->shape[1] != 5 || !rois->isReal() ||
      rois->shape[0] == 0)
    return n.fail("boxes do not have shape [boxes, 5]");
  if (!areInside(*rois, dimOf(x, 0)))
    return n.fail("a box names no image of the operand, or is not finite");
  Bins bins = binsOf(*rois, shapeOf(x), *out, n.f("spatial_scale", 1));
  size_t most = 1;
  for (const Ints &places : bins.places)
    most = std::max(most, places.size());
  Ints index;
  for (Ints &places : bins.places) {
    places.resize(most, places.empty() ? 0 : places.front());
    index.append(places.begin(), places.end());
  }
  int64_t count = int64_t(bins.places.size());
  Value taken =
      e.gather(channelRows(e, x), e.reshape(e.ints(index), {count, int64_t(most)}), 0);
  Value y = e.reduce(taken, "max", {1}, false); // [bins, C]
  Value any = e.cmp(e.reshape(e.ints(bins.filled), {count, 1}), 0, "ne");
  y = y ? e.select(any, y, e.like(y, 0)) : y;
  Ints shape = {rois->shape[0], (*out)[0], (*out)[1], dimOf(x, 1)};
  return n.out(y ? e.transpose(e.reshape(y, shape), {0, 3, 1, 2}) : y);
}

} // namespace

void addRoi(OpTable &table) {
  table["RoiAlign"] = importRoiAlign;
  table["MaxRoiPool"] = importMaxRoiPool;
}

} // namespace sluice::frontend
