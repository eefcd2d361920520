// From times of launches to rates. Products: four parts, by least squares of the relative
// errors; the rest: medians.

#include "tools/sluice/Calibration.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace sluice::cli {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// `flops`: of the tiles, where known already; what is left of the times is fitted.
void fitProducts(const std::vector<MeasuredLaunch> &launches, ProductKind kind,
                 ProductRates &rates, double flops = 0) {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const MeasuredLaunch &launch : launches) {
    const ProductWork &work = launch.cost.product;
    if (!launch.isOnlyProduct || work.kind != kind || launch.us <= 0)
      continue;
    // Short launches weigh less: a clock's and a cache's accidents are in their times.
    double weight = std::sqrt(std::min(1.0, launch.us / 50)) / launch.us;
    double known = flops > 0 ? work.flops / flops * 1e6 : 0;
    rows.push_back({flops > 0 ? 0 : work.flops * weight, work.left * weight,
                    work.right * weight, work.store * weight});
    targets.push_back(std::max(0.0, launch.us - known) * weight);
  }
  if (rows.size() < 4)
    return;
  std::vector<double> us = nonNegativeLeastSquares(rows, targets);
  double *fields[] = {&rates.flops, &rates.left, &rates.right, &rates.store};
  for (size_t i = 0; i < 4; ++i)
    *fields[i] = us[i] > 0 ? 1e6 / us[i] : 0;
  if (flops > 0)
    rates.flops = flops;
}

/// Launches that do little arithmetic, by size: the median of each factor of four, less
/// what a launch takes in any case.
void fitBandwidth(const std::vector<MeasuredLaunch> &launches, DeviceRates &rates) {
  constexpr double fewFlops = 1.3; // per byte
  std::map<int, std::vector<double>> bySize;
  for (const MeasuredLaunch &launch : launches)
    if (launch.isOnlyGenerated && launch.cost.bytes >= 1 << 15 &&
        launch.us > 2 * rates.launchUs &&
        launch.cost.vectorFlops < fewFlops * launch.cost.bytes)
      bySize[int(std::log2(launch.cost.bytes) / 2)].push_back(
          launch.cost.bytes / (launch.us - rates.launchUs) * 1e6);
  if (bySize.empty())
    return;
  rates.memory.clear();
  for (auto &[size, values] : bySize) {
    int64_t bytes = int64_t(1) << (2 * size + 1);
    double rate = median(values);
    // More bytes never take less time.
    if (!rates.memory.empty()) {
      const BandwidthPoint &last = rates.memory.back();
      rate = std::min(rate, last.bytesPerSecond * double(bytes) / double(last.bytes));
    }
    rates.memory.push_back({bytes, rate});
  }
}

/// Of launches that arithmetic bounds: the rate that few of them exceed.
void fitVector(const std::vector<MeasuredLaunch> &launches, DeviceRates &rates) {
  std::vector<double> values;
  for (const MeasuredLaunch &launch : launches)
    if (launch.isOnlyGenerated && launch.us > 5 &&
        launch.cost.vectorFlops > 4 * launch.cost.bytes)
      values.push_back(launch.cost.vectorFlops / launch.us * 1e6);
  if (!values.empty())
    rates.vectorFlops = median(values);
}

void fitMoves(const std::vector<MeasuredLaunch> &launches, DeviceRates &rates) {
  double indexBytes = 0, indexUs = 0, moveBytes = 0, moveUs = 0;
  for (const MeasuredLaunch &launch : launches) {
    if (launch.cost.indexBytes > 0)
      indexBytes += launch.cost.indexBytes, indexUs += launch.us;
    if (launch.cost.moveBytes > 0)
      moveBytes += launch.cost.moveBytes, moveUs += launch.us;
  }
  if (indexUs > 0)
    rates.indexBytes = indexBytes / indexUs * 1e6;
  if (moveUs > 0)
    rates.moveBytes = moveBytes / moveUs * 1e6;
}

} // namespace

std::vector<double> nonNegativeLeastSquares(const std::vector<std::vector<double>> &rows,
                                            const std::vector<double> &targets) {
  size_t n = rows.empty() ? 0 : rows[0].size();
  std::vector<double> x(n), scale(n), gradient(n);
  std::vector<std::vector<double>> normal(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const std::vector<double> &row : rows)
      sum += row[i] * row[i];
    scale[i] = sum > 0 ? 1 / std::sqrt(sum) : 0;
  }
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < n; ++i) {
      gradient[i] += rows[r][i] * scale[i] * targets[r];
      for (size_t j = 0; j < n; ++j)
        normal[i][j] += rows[r][i] * scale[i] * rows[r][j] * scale[j];
    }
  // One unknown after the other, each at its best; converges since the problem is convex.
  constexpr int sweeps = 100000;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    double moved = 0;
    for (size_t i = 0; i < n; ++i) {
      if (normal[i][i] <= 0)
        continue;
      double rest = gradient[i];
      for (size_t j = 0; j < n; ++j)
        rest -= normal[i][j] * x[j];
      double next = std::max(0.0, x[i] + rest / normal[i][i]);
      moved = std::max(moved, std::abs(next - x[i]));
      x[i] = next;
    }
    if (moved < 1e-12)
      break;
  }
  for (size_t i = 0; i < n; ++i)
    x[i] *= scale[i];
  return x;
}

void fitRates(const std::vector<MeasuredLaunch> &launches, DeviceRates &rates) {
  fitProducts(launches, ProductKind::Product, rates.product);
  // Convolutions run the same tiles.
  double flops = rates.product.flops;
  fitProducts(launches, ProductKind::Conv, rates.conv, flops);
  fitProducts(launches, ProductKind::ConvWeightGrad, rates.convWeightGrad, flops);
  // Operands of f16 are widened and run through them too.
  rates.bf16Flops = rates.f16Flops = rates.conv16Flops = flops;
  fitBandwidth(launches, rates);
  fitVector(launches, rates);
  fitMoves(launches, rates);
}

} // namespace sluice::cli
