#pragma once
// The CTC loss from its definition: all alignments, one by one. For small sizes only.

#include "kernels/CtcParams.h"

#include <vector>

namespace sluice::reference {

struct CtcValue {
  std::vector<double> loss; // [batch]
  std::vector<double> grad; // [batch, frames, classes], of each sample's own loss
};

CtcValue ctc(const CtcParams &p, const std::vector<float> &logProbs,
             const std::vector<int64_t> &targets,
             const std::vector<int64_t> &inputLengths,
             const std::vector<int64_t> &targetLengths);

} // namespace sluice::reference
