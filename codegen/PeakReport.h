#pragma once
// When a program needs most bytes, and for what.

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace sluice {

struct PeakBuffer {
  std::string name, category; // of the model's node, or of the parameter
  int64_t bytes = 0;
};

struct Peak {
  std::string entry;
  /// "update" where most of it are gradients that wait for their update, or the launch
  /// writes the state; else "backward" or "forward".
  std::string phase;
  std::string launch, node;     // what runs then; empty in a program without launches
  int64_t bytes = 0;            // live then
  std::vector<PeakBuffer> live; // the largest first

  /// "update, while 'contract' of 'fc1' runs: 'fc1.weight' (gradients, 4096), ...".
  std::string text() const;
};

/// Of the program with the largest step reservation of a planned module.
Peak peakOf(mlir::ModuleOp module);

} // namespace sluice
