#pragma once
// The losses: what they compare with, their unnormalised sum and what it is divided by.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// How samples lie in the loss's prediction: dimension 0 holds `batch` samples of
/// `rowsPerSample` rows.
struct SampleLayout {
  int64_t batch = 1, rowsPerSample = 1;
};

/// An input that a loss adds to the model; the first one holds labels or targets.
struct LossInput {
  std::string name;
  mlir::RankedTensorType type;
  std::optional<std::pair<int64_t, int64_t>> bounds; // of labels, inclusive
  std::optional<int64_t> ignored; // a label outside the bounds that counts for nothing
};

struct LossValue {
  mlir::Value sum, count; // f32 scalars
};

/// Whether the kind is known, and whether it compares with an input.
bool isLossKind(llvm::StringRef kind);
bool hasTarget(llvm::StringRef kind);
/// "cross_entropy, nll, ..."
inline constexpr llvm::StringLiteral lossKindList =
    "cross_entropy, nll, mse, l1, huber, kl, bce_with_logits, ctc, triplet, sum or "
    "output";

/// The dimension that counts classes: `loss.class_axis`, else the last for rank 2 and 3
/// (rows or [B, T, V]) and 1 above (images).
int64_t classAxis(const LossSpec &spec, int64_t rank);

using EmitError = std::function<mlir::InFlightDiagnostic()>;
mlir::FailureOr<std::vector<LossInput>> lossInputs(const LossSpec &spec,
                                                   mlir::RankedTensorType prediction,
                                                   SampleLayout layout,
                                                   const EmitError &emitError);

/// What a loss is built from: outputs of the model (triplet has three), the inputs it
/// adds, and the samples that are no padding (i64 scalar).
struct LossOperands {
  llvm::SmallVector<mlir::Value> predictions, targets;
  mlir::Value valid;
  /// By sample, f32, where replay weighs samples: of its loss; of its distance to
  /// `logits` (of the prediction's shape). Null without.
  mlir::Value weight, match, logits;
};

LossValue buildLoss(graph::GraphBuilder &b, const LossSpec &spec,
                    const LossOperands &operands, SampleLayout layout);

} // namespace sluice
