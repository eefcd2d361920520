#pragma once
// The geometry of a sliding window, as Conv and the pools spell it.

#include "frontend/onnx/Node.h"

namespace sluice::frontend {

struct Window {
  Ints kernel, strides, dilations, begin, end;
  int64_t extent(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

/// Reads kernel_shape (unless `kernel` is given), strides, dilations, pads and auto_pad
/// for an operand with these spatial dimensions; an error where they make no sense.
std::optional<Window> readWindow(Node &n, llvm::ArrayRef<int64_t> spatial,
                                 std::optional<Ints> kernel);
/// Number of positions; with `ceil` also those that start inside and end outside.
std::optional<Ints> windowOutput(Node &n, const Window &w,
                                 llvm::ArrayRef<int64_t> spatial, bool ceil);
/// Attributes strides, dilations, pads_begin and pads_end.
llvm::SmallVector<mlir::NamedAttribute> windowAttributes(Emitter &e, const Window &w);

/// Places of the maxima of MaxPool, counted over the whole operand (PoolIndices.cpp).
Value maxPoolIndices(Node &n, Value x, const Window &w, llvm::ArrayRef<int64_t> output);

/// x [N, C, ...] and w [M, C / groups, ...] with a bias [M] or null.
Value convolution(Node &n, Value x, Value w, Value bias);

} // namespace sluice::frontend
