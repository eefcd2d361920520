#pragma once
// The model's inputs with every dimension bound.

#include "frontend/onnx/GraphImporter.h"

namespace sluice::frontend {

struct BoundInput {
  std::string name;
  mlir::RankedTensorType type;
  int32_t onnxType = 0;
  bool rebatched = false;                 // its batch is 1 in the model and another here
  std::optional<graph::HostTensor> value; // fixed by the options: no input any more
};

struct BoundInputs {
  std::vector<BoundInput> inputs;
  int64_t rebatch = 0; // the batch asked for where the model has 1
};

/// Adds an error for every dimension that is not bound or contradicts another.
BoundInputs bindInputs(const onnx::GraphProto &graph, mlir::MLIRContext *context,
                       const ImportOptions &options, ImportReport &report);

} // namespace sluice::frontend
