#pragma once
// Parameters and moments that a plan stores as codes of fewer than 16 bits with scales
// beside them (kernels/StoredFormats.h). Everything outside a plan knows their values as
// f32: checkpoints have "param/NAME" and "opt/NAME/m" so, with the scales and
// "format/NAME" or "format/opt/NAME/m" in the metadata, by which the same codes come
// back.

#include "kernels/StoredFormats.h"
#include "runtime/PlanCheck.h"
#include "runtime/Safetensors.h"
#include "runtime/Session.h"

#include <optional>
#include <vector>

namespace sluice {

/// None for a tensor that is no such parameter or moment.
std::optional<StoredFormat> codedFormat(const fbs::StateTensor &tensor);
/// The shape of the values of a coded tensor.
std::vector<int64_t> valueShapeOf(const fbs::StateTensor &tensor);

/// A plan's formats are known, and codes, scales and masters fit their tensors.
Status checkCodes(const fbs::Plan &plan, VisitBudget &budget);

/// The coded parameter or moment that a master, or a tensor of scales, belongs to; null
/// for others.
const fbs::StateTensor *codedOwner(const Plan &plan, const fbs::StateTensor &tensor);

/// "format/NAME" of the metadata of files.
std::string formatKey(std::string_view parameter);

/// The f32 values: exact where there is a master.
std::vector<float> decodeState(const Session &session, const fbs::StateTensor &tensor);

/// Stores values, in the master too. With a `file` that has the tensor in the same
/// format codes are under its scales, else scales follow from the values, and second
/// moments are raised above 0. Gives how many values were changed.
uint64_t encodeState(Session &session, const fbs::StateTensor &tensor,
                     std::span<const float> values,
                     const SafetensorsFile *file = nullptr);

} // namespace sluice
