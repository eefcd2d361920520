#pragma once
// Pieces that several families share.

#include "frontend/onnx/Node.h"

namespace sluice::frontend {

/// The second operand of a binary operator. Before opset 7 it is aligned at attribute
/// `axis` of the first instead of at the last dimension.
Value secondOperand(Node &n, Value first);
/// Results of unsigned operands wrap around; the type is that of operand 0.
Value wrapUnsigned(Node &n, Value x);
/// x limited to [low, high] with gradient 1 inside and at the bounds, as PyTorch's clamp.
Value clamp(Emitter &e, Value x, double low, double high);
/// x where x > 0, else `negative`.
Value positiveOr(Emitter &e, Value x, Value negative);
/// min(x, 0) with gradient 1 at 0.
Value negativePart(Emitter &e, Value x);

} // namespace sluice::frontend
