#pragma once
// The patterns of LegalizeForKernels by kind.

namespace mlir {
class RewritePatternSet;
}

namespace sluice {

/// Sums of padded pieces (the gradient of a split) become concatenations.
void addShapePatterns(mlir::RewritePatternSet &patterns);

} // namespace sluice
