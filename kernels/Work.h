#pragma once
// What a kernel does for a launch, from its name and parameters: the numbers that a cost
// model needs beside the bytes of the operands.

#include "kernels/Params.h"

#include <string_view>

namespace sluice {

enum class WorkKind { Generated, Product, Conv, ConvWeightGrad, Index, Move };

/// Of all units of a stage together.
struct KernelWork {
  WorkKind kind = WorkKind::Generated;
  /// Matrix kernels: arithmetic as the model asks for it, and in whole tiles.
  double flops = 0, tileFlops = 0;
  /// Elements of either operand that are packed or gathered, and of the result written
  /// for each block of the sum.
  double left = 0, right = 0, store = 0;
  int64_t operandType = 0; ///< of a product (Formats.h)
  /// Rows x columns x batches of the product, for machines with other tiles.
  double rows = 0, cols = 0, depth = 0, batches = 0;
  /// Bytes read and written where the operands' sizes do not say it (a gather reads some
  /// rows of a table); negative where they do.
  double bytes = -1;
};

/// `chunk`: units that a worker takes at once.
KernelWork workOf(std::string_view kernel, const int64_t *params, int64_t chunk);

KernelWork gemmWork(const GemmParams &p, bool packed, int64_t chunk);
/// `products` of a pair of blocks of queries and keys: 2, or of the gradient 5.
KernelWork attentionWork(const AttentionParams &p, int64_t products);
KernelWork convWork(const ConvParams &p, bool inputGrad);
KernelWork convWeightGradWork(const ConvWeightGradParams &p);

} // namespace sluice
