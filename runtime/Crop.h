#pragma once
// Leaves out of an output what its inputs were filled up with.

#include "runtime/Plan.h"

#include <functional>
#include <span>
#include <vector>

namespace sluice {

/// The size that an input had along a dimension before it was filled up.
using GivenSize = std::function<int64_t(uint32_t input, uint32_t dimension)>;

/// What of an output is real.
class CropShape {
public:
  CropShape() = default;
  /// Of outputs with samples the first `samples` of `batch`.
  CropShape(const fbs::Port &port, int64_t batch, int64_t samples,
            const GivenSize &given);

  const std::vector<int64_t> &shape() const { return dimensions; }
  /// True if something along another dimension than that of the samples is left out.
  bool isCropped() const { return !axes.empty(); }
  size_t bytes() const { return realBytes; }
  /// Copies the real elements together; `source` is the whole output, or the part of it
  /// that begins with the first of the samples.
  void copy(const uint8_t *source, uint8_t *target) const;

private:
  struct Axis {
    int64_t stride, size, real; // stride in elements
  };
  uint8_t *copyAxis(size_t axis, const uint8_t *source, int64_t elements,
                    uint8_t *target) const;

  std::vector<int64_t> dimensions;
  std::vector<Axis> axes; // that are not whole, from the outermost
  size_t width = 1, realBytes = 0;
  int64_t elements = 0; // of `source`
};

/// "" or what is wrong with the crops of an output: they come from a file.
std::string checkCrops(const fbs::Program &program, const fbs::Port &output);

} // namespace sluice
