#pragma once
// Importance as a safetensors file, which `precision.policy` reads. Tensors, all f32
// [blocks], in the order of parameters and of formats:
//
//   importance/NAME               mean of the Hessian's diagonal over a block's elements
//   importance/NAME/stderr        its standard error
//   increase/NAME/FORMAT          expected rise of the loss when the block is stored so
//   increase/NAME/FORMAT/stderr
//
// An increase is at least 0, also where the curvature is negative; 3.4e38 where a weight
// has no finite value in the format. Metadata: model_hash, model_name, plan_spec_hash,
// kind, samples, block, seed, labels, eps, draws, windows, loss, stderr ("none": there is
// none).

#include "runtime/Safetensors.h"
#include "runtime/probe/Importance.h"

namespace sluice {

Status writeProbe(const std::string &path, const Importance &importance,
                  const Metadata &metadata);

/// The increase of a block as it is written.
double writtenIncrease(const ParameterImportance &parameter, size_t format,
                       int64_t block);

} // namespace sluice
