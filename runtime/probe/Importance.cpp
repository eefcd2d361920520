#include "runtime/probe/Importance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace sluice {

BlockGrid importanceGrid(ImportanceBlocks blocks, std::span<const int64_t> shape) {
  constexpr int64_t tile = 128;
  MatrixShape matrix = matrixOf(shape);
  matrix.rows = std::max<int64_t>(matrix.rows, 1);
  matrix.columns = std::max<int64_t>(matrix.columns, 1);
  BlockGrid grid{matrix.rows, matrix.columns, matrix.rows, matrix.columns};
  if (blocks == ImportanceBlocks::tensor || shape.size() < 2)
    return grid;
  if (shape.size() == 2) {
    grid.blockRows = std::min(tile, matrix.rows);
    grid.blockColumns = std::min(tile, matrix.columns);
  } else {
    grid.blockRows = 1;
  }
  return grid;
}

ParameterImportance::ParameterImportance(std::string name, std::vector<int64_t> shape,
                                         ImportanceBlocks blocks,
                                         std::vector<float> weights, bool keepsErrors)
    : parameter(std::move(name)), dimensions(std::move(shape)),
      values(std::move(weights)), cells(importanceGrid(blocks, dimensions)) {
  size_t count = static_cast<size_t>(cells.count());
  sums.assign(values.size(), 0);
  blockSums.resize(count);
  blockSizes.assign(count, 0);
  for (size_t i = 0; i < values.size(); ++i)
    ++blockSizes[static_cast<size_t>(cells.blockOf(static_cast<int64_t>(i)))];
  diagonal.blocks.resize(count);
  increases.resize(std::size(probedFormats));
  for (Figures &figures : increases)
    figures.blocks.resize(count);
  overflow.resize(std::size(probedFormats));
  errors.resize(keepsErrors ? std::size(probedFormats) : 0);
  for (size_t format = 0; format < errors.size(); ++format) {
    errors[format].reserve(values.size());
    for (float error : errorsOf(format))
      errors[format].push_back(
          static_cast<uint16_t>((std::bit_cast<uint32_t>(error) + 0x8000) >> 16));
  }
}

/// 0 where there is none, since Q(w) is not finite: the block overflows.
std::vector<float> ParameterImportance::errorsOf(size_t format) {
  std::vector<float> error = roundedTo(probedFormats[format], dimensions, values);
  for (size_t i = 0; i < error.size(); ++i) {
    double distance = static_cast<double>(error[i]) - values[i];
    error[i] = static_cast<float>(std::min(0.5 * distance * distance, 1e38));
    if (std::isfinite(distance))
      continue;
    error[i] = 0;
    overflow[format].resize(blockSums.size());
    overflow[format][static_cast<size_t>(cells.blockOf(static_cast<int64_t>(i)))] = true;
  }
  return error;
}

/// Sums of the window times factorOf(element).
template <class Factor>
void ParameterImportance::sumBlocks(Factor factorOf, double scale, bool isMean,
                                    double weight, Figures &figures) {
  std::fill(blockSums.begin(), blockSums.end(), 0.0);
  for (int64_t row = 0, i = 0; row < cells.rows; ++row) {
    double *line = blockSums.data() + row / cells.blockRows * cells.across();
    for (int64_t column = 0; column < cells.columns;) {
      int64_t end = std::min(column + cells.blockColumns, cells.columns);
      double sum = 0;
      for (; column < end; ++column, ++i) {
        size_t element = static_cast<size_t>(i);
        sum += sums[element] * factorOf(element);
      }
      *line++ += sum;
    }
  }
  double all = 0;
  for (size_t b = 0; b < blockSums.size(); ++b) {
    double sum = blockSums[b] * scale;
    all += sum;
    double size = isMean ? static_cast<double>(blockSizes[b]) : 1;
    figures.blocks[b].add(sum / size, weight);
  }
  double size = isMean ? static_cast<double>(values.size()) : 1;
  figures.whole.add(all / size, weight);
}

void ParameterImportance::closeWindow(double scale, double weight) {
  if (values.empty())
    return;
  sumBlocks([](size_t) { return 1.0; }, scale, true, weight, diagonal);
  for (size_t format = 0; format < increases.size(); ++format) {
    if (!errors.empty()) {
      auto kept = [&](size_t i) {
        return std::bit_cast<float>(uint32_t{errors[format][i]} << 16);
      };
      sumBlocks(kept, scale, false, weight, increases[format]);
      continue;
    }
    std::vector<float> found = errorsOf(format);
    sumBlocks([&](size_t i) { return found[i]; }, scale, false, weight,
              increases[format]);
  }
  std::fill(sums.begin(), sums.end(), 0.0);
}

} // namespace sluice
