#pragma once
// The losses: what they compare with, their unnormalised sum and what it is divided by.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"

#include <cstdint>
#include <functional>
#include <optional>

namespace sluice {

/// How samples lie in the loss's prediction: dimension 0 holds `batch` samples of
/// `rowsPerSample` rows.
struct SampleLayout {
  int64_t batch = 1, rowsPerSample = 1;
};

/// The input a loss adds to the model.
struct LossTarget {
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

/// The dimension that counts classes: `loss.class_axis`, else the last for rank 2 and 3
/// (rows or [B, T, V]) and 1 above (images).
int64_t classAxis(const LossSpec &spec, int64_t rank);

using EmitError = std::function<mlir::InFlightDiagnostic()>;
mlir::FailureOr<LossTarget> lossTarget(const LossSpec &spec,
                                       mlir::RankedTensorType prediction,
                                       SampleLayout layout, const EmitError &emitError);

/// Builds the loss; samples from `valid` (i64 scalar) on are padding. `target` is null
/// for kinds without.
LossValue buildLoss(graph::GraphBuilder &b, const LossSpec &spec, mlir::Value prediction,
                    mlir::Value target, mlir::Value valid, SampleLayout layout);

} // namespace sluice
