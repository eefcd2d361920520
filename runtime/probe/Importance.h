#pragma once
// How much the loss depends on each block of each parameter, and what each stored format
// would cost there: estimates of the Hessian's diagonal h, summed up by block, with their
// error.
//
// A quantizer moves weight w to Q(w), so that near a minimum the loss is expected to rise
// by sum 1/2 h (Q(w) - w)^2 (Dong et al., HAWQ-V2, 2020), here with the real errors of
// the real weights.

#include "kernels/StoredFormats.h"
#include "runtime/Status.h"
#include "runtime/probe/RunningMean.h"

#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class ImportanceBlocks {
  tensor, // one block
  tiles,  // of matrices 128 x 128; of tensors of higher rank a row of dimension 0 each
};

BlockGrid importanceGrid(ImportanceBlocks blocks, std::span<const int64_t> shape);

/// Formats narrower than f32.
inline constexpr StoredFormat probedFormats[] = {
    StoredFormat::bf16,  StoredFormat::fp16,    StoredFormat::e4m3,
    StoredFormat::e5m2,  StoredFormat::e4m3Row, StoredFormat::e4m3Tile,
    StoredFormat::mxfp8, StoredFormat::mxfp4,   StoredFormat::nvfp4};

class ParameterImportance {
public:
  /// `weights`: of the tensor, row-major. `keepsErrors`: 18 bytes per weight for their
  /// errors in all formats, else these are found again for each window: slow.
  ParameterImportance(std::string name, std::vector<int64_t> shape,
                      ImportanceBlocks blocks, std::vector<float> weights,
                      bool keepsErrors = true);

  const std::string &name() const { return parameter; }
  const std::vector<int64_t> &shape() const { return dimensions; }
  const std::vector<float> &weights() const { return values; }
  const BlockGrid &grid() const { return cells; }

  /// What the current window has seen of the diagonal: sums, to be written by an
  /// estimator.
  std::vector<double> &window() { return sums; }

  /// The window times `scale` is one estimate of the diagonal. Empties it.
  void closeWindow(double scale, double weight);

  struct Figures {
    std::vector<RunningMean> blocks;
    RunningMean whole;
  };
  /// Mean of the diagonal over a block's elements.
  const Figures &importance() const { return diagonal; }
  /// Sums over a block's elements of 1/2 h (Q(w) - w)^2, by place in `probedFormats`.
  const Figures &increase(size_t format) const { return increases[format]; }
  /// A weight of the block has no finite value in the format.
  bool overflows(size_t format, int64_t block) const {
    return !overflow[format].empty() && overflow[format][static_cast<size_t>(block)];
  }

private:
  std::vector<float> errorsOf(size_t format);
  template <class Factor>
  void sumBlocks(Factor factorOf, double scale, bool isMean, double weight,
                 Figures &figures);

  std::string parameter;
  std::vector<int64_t> dimensions;
  std::vector<float> values;
  BlockGrid cells;
  std::vector<double> sums;
  std::vector<double> blockSums;   // room
  std::vector<int64_t> blockSizes; // elements
  /// 1/2 (Q(w) - w)^2 by format, if kept: the upper halves of f32, nearest.
  std::vector<std::vector<uint16_t>> errors;
  std::vector<std::vector<bool>> overflow; // by format, of blocks; empty: none
  Figures diagonal;
  std::vector<Figures> increases;
};

/// Of all parameters that train, in the order of their names.
struct Importance {
  std::vector<ParameterImportance> parameters;
  bool keepsErrors = true;

  /// One estimate of the diagonal, as ParameterImportance::closeWindow.
  void closeWindow(double scale, double weight) {
    for (ParameterImportance &parameter : parameters)
      parameter.closeWindow(scale, weight);
  }
};

} // namespace sluice
