#include "frontend/OnnxImporter.h"

namespace sluice {

ImportOptions ImportOptions::from(const TrainingSpec &spec) {
  ImportOptions options;
  options.shapes = spec.shapes;
  options.dimensions = spec.dimensions;
  options.tie = spec.tie;
  options.untie = spec.untie;
  return options;
}

} // namespace sluice
