#include "frontend/onnx/Sampler.h"

namespace sluice::frontend {

Sampler::Sampler(Emitter &e, Value x, Outside outside, bool alignCorners)
    : e(e), shape(shapeOf(x)), outside(outside), alignCorners(alignCorners) {
  int64_t positions = elementCount(llvm::ArrayRef<int64_t>(shape).drop_front(2));
  table = e.reshape(x, {shape[0], shape[1], positions});
}

/// Moves positions outside into the operand.
Value Sampler::padded(Value at, int64_t axis) {
  double last = double(size(axis) - 1);
  if (outside == Outside::Zeros)
    return at;
  if (outside == Outside::Border)
    return clamp(e, at, 0, last);
  double low = alignCorners ? 0 : -0.5, span = alignCorners ? last : last + 1;
  if (span == 0)
    return e.like(at, 0);
  Value far = e.un("abs", e.add(at, -low)); // a triangle wave of period 2 * span
  Value period = e.un("floor", e.mul(far, 1 / (2 * span)));
  Value phase = e.sub(far, e.mul(period, 2 * span));
  Value folded = e.sub(span, e.un("abs", e.sub(span, phase)));
  return clamp(e, e.add(folded, low), 0, last);
}

/// Elements at integer positions; 0 outside.
Value Sampler::take(llvm::ArrayRef<Value> at) {
  Value inside, index;
  for (auto [axis, position] : llvm::enumerate(at)) {
    double last = double(size(axis) - 1);
    Value p = padded(position, axis);
    Value ok = e.bin("and", e.cmp(p, 0, "ge"), e.cmp(p, last, "le"));
    inside = inside ? e.bin("and", inside, ok) : ok;
    // As integers: flat positions beyond 2^24 are no floats any more.
    p = e.cast(clamp(e, p, 0, last), e.i64Type());
    index = index ? e.add(e.mul(index, double(size(axis))), p) : p;
  }
  if (!index || !inside)
    return {};
  Ints full = {shape[0], shape[1], dimOf(index, 1)};
  Value flat = e.broadcast(e.unsqueeze(index, 1), full);
  Value taken = e.op("gather_elements", {table, flat}, {e.i64("axis", 2)});
  return taken ? e.select(e.unsqueeze(inside, 1), taken, e.like(taken, 0)) : taken;
}

Value Sampler::nearest(llvm::ArrayRef<Value> at) {
  llvm::SmallVector<Value> whole;
  for (auto [axis, position] : llvm::enumerate(at))
    whole.push_back(e.un("round", padded(position, axis)));
  return take(whole);
}

/// The sum over all combinations of taps; `weight(distance, tap)` per axis.
template <typename Weight>
Value Sampler::weighted(llvm::ArrayRef<Value> at, Taps taps, Weight weight) {
  llvm::SmallVector<Value> base;
  for (Value position : at)
    base.push_back(e.un("floor", position));
  int64_t combinations = 1;
  for (size_t i = 0; i < at.size(); ++i)
    combinations *= int64_t(taps.size());
  Value sum;
  for (int64_t c = 0; c < combinations; ++c) {
    llvm::SmallVector<Value> places;
    Value factor;
    int64_t rest = c;
    for (size_t i = 0; i < at.size(); ++i) {
      int tap = taps[rest % int64_t(taps.size())];
      rest /= int64_t(taps.size());
      places.push_back(e.add(base[i], double(tap)));
      Value w = weight(e.sub(at[i], base[i]), tap);
      factor = factor ? e.mul(factor, w) : w;
    }
    Value taken = take(places);
    if (!taken || !factor)
      return {};
    Value part = e.mul(taken, e.unsqueeze(factor, 1));
    sum = sum ? e.add(sum, part) : part;
  }
  return sum;
}

Value Sampler::linear(llvm::ArrayRef<Value> at) {
  llvm::SmallVector<Value> moved;
  for (auto [axis, position] : llvm::enumerate(at))
    moved.push_back(padded(position, axis));
  return weighted(moved, {0, 1}, [&](Value distance, int tap) {
    return tap ? distance : e.sub(1, distance);
  });
}

/// a = -0.75; taps 0 and 1 lie within 1, the others within 2.
Value Sampler::cubic(llvm::ArrayRef<Value> at) {
  return weighted(at, {-1, 0, 1, 2}, [&](Value distance, int tap) {
    constexpr double a = -0.75;
    Value t = e.un("abs", e.add(distance, double(-tap)));
    if (tap == 0 || tap == 1)
      return e.add(e.mul(e.mul(e.add(e.mul(t, a + 2), -(a + 3)), t), t), 1);
    return e.add(e.mul(e.add(e.mul(e.add(e.mul(t, a), -5 * a), t), 8 * a), t), -4 * a);
  });
}

} // namespace sluice::frontend
