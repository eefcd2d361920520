// Gradients by layer as SVG: the RMS over a run on a logarithmic scale, and below it what
// clipping leaves of the rate.

#include "tools/sluice/FitPicture.h"
#include "tools/sluice/GradientLog.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr double kLeft = 80, kTop = 50, kHeight = 260, kGap = 40, kRateHeight = 90;

std::string powerText(int power) { return "1e" + std::to_string(power); }

} // namespace

std::string GradientHistory::svg(const std::string &title) const {
  double least = INFINITY, most = 0;
  for (const Layer &layer : layers)
    if (layer.seen > 0)
      least = std::min(least, layer.least), most = std::max(most, layer.most);
  if (!(most > 0))
    least = 0.1, most = 1;
  int low = static_cast<int>(std::floor(std::log10(least)));
  int high = std::max(low + 1, static_cast<int>(std::ceil(std::log10(most))));
  double each = std::clamp(900.0 / double(std::max<size_t>(1, layers.size())), 3.0, 40.0);
  double width = each * double(layers.size()), bottom = kTop + kHeight;
  auto y = [&](double log) { return bottom - (log - low) / (high - low) * kHeight; };
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kLeft + width + 30
      << "' height='" << bottom + kGap + kRateHeight + 40
      << "' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' "
         "fill='white'/>\n<text x='"
      << kLeft << "' y='24' font-size='14'>" << xmlText(title)
      << ": gradients by layer, in order of depth, over " << updates
      << " updates</text>\n<text x='" << kLeft << "' y='42'>RMS of the mean gradient"
      << "</text>\n";
  int step = std::max(1, (high - low) / 8);
  for (int power = low; power <= high; power += step)
    svg << "<line x1='" << kLeft << "' x2='" << kLeft + width << "' y1='" << y(power)
        << "' y2='" << y(power) << "' stroke='#e4e4e4'/><text x='" << kLeft - 8 << "' y='"
        << y(power) + 4 << "' text-anchor='end'>" << powerText(power) << "</text>\n";
  double rateBottom = bottom + kGap + kRateHeight;
  svg << "<text x='" << kLeft << "' y='" << bottom + kGap - 6
      << "'>share of the rate that clipping leaves</text>\n";
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer &layer = layers[i];
    double x = kLeft + each * (double(i) + 0.5);
    double factor = layer.factorSum / double(std::max<int64_t>(1, layer.updates));
    double mean = layer.seen ? layer.logSum / double(layer.seen) : low;
    svg << "<g><title>" << xmlText(layer.name) << ": " << std::pow(10, mean) << " ("
        << layer.least << " to " << layer.most << "), rate " << factor << "</title>";
    if (layer.seen > 0)
      svg << "<line x1='" << x << "' x2='" << x << "' y1='" << y(std::log10(layer.least))
          << "' y2='" << y(std::log10(layer.most)) << "' stroke='#9ecae9' stroke-width='"
          << std::max(2.0, each * 0.5) << "'/><circle cx='" << x << "' cy='" << y(mean)
          << "' r='" << std::clamp(each / 4, 1.5, 4.0) << "' fill='#1f4e9c'/>";
    svg << "<rect x='" << x - each * 0.4 << "' width='" << each * 0.8 << "' y='"
        << rateBottom - factor * kRateHeight << "' height='" << factor * kRateHeight
        << "' fill='#f2b777'/></g>\n";
  }
  for (double share : {0.0, 1.0})
    svg << "<text x='" << kLeft - 8 << "' y='" << rateBottom - share * kRateHeight + 4
        << "' text-anchor='end'>" << share << "</text>\n";
  svg << "</svg>\n";
  return svg.str();
}

} // namespace sluice::cli
