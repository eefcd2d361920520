#pragma once
// Weights that a model takes as inputs: ONNX Runtime's training artifacts are written so.
// They become initializers, from the checkpoint beside the model or as zeros.

#include "frontend/OnnxImporter.h"
#include "frontend/onnx/ModelFile.h"

#include "llvm/ADT/StringSet.h"

namespace sluice::frontend {

/// Gives the inputs that are weights a value in the file's graph. Returns the patterns of
/// `promote` that named one.
llvm::StringSet<> addInputParameters(ModelFile &file, const ImportOptions &options,
                                     ImportReport &report);

} // namespace sluice::frontend
