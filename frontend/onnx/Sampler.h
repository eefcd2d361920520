#pragma once
// Elements of an operand at real positions, as weighted sums of their neighbours.

#include "frontend/onnx/Elementwise.h"

namespace sluice::frontend {

/// What lies outside the operand.
enum class Outside { Zeros, Border, Reflection };

class Sampler {
public:
  /// x: [N, C, spatial...]. `alignCorners` sets where reflection happens.
  Sampler(Emitter &e, Value x, Outside outside, bool alignCorners);

  int64_t rank() const { return int64_t(shape.size()) - 2; }
  int64_t size(int64_t axis) const { return shape[2 + axis]; }

  // Positions: one value [N, P] per spatial axis, in elements. Results: [N, C, P].
  Value nearest(llvm::ArrayRef<Value> at);
  Value linear(llvm::ArrayRef<Value> at);
  Value cubic(llvm::ArrayRef<Value> at); // Keys' kernel

private:
  using Taps = llvm::ArrayRef<int>;
  Value padded(Value at, int64_t axis);
  Value take(llvm::ArrayRef<Value> at);
  template <typename Weight>
  Value weighted(llvm::ArrayRef<Value> at, Taps taps, Weight weight);

  Emitter &e;
  Ints shape;
  Outside outside;
  bool alignCorners;
  Value table; // [N, C, positions]
};

} // namespace sluice::frontend
