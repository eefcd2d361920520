#include "tools/sluice/FitPicture.h"

#include "tools/sluice/Cli.h"

#include <algorithm>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr double kLeft = 90, kTop = 50, kWidth = 640, kHeight = 360;

/// From values to pixels along one axis, with some room at both ends.
struct Axis {
  double least, most, from, to;
  double at(double value) const {
    return from + (value - least) / (most - least) * (to - from);
  }
};

Axis axisOver(double least, double most, double from, double to) {
  double room = std::max(most - least, most * 0.02) * 0.08;
  return {std::max(0.0, least - room), most + room, from, to};
}

void grid(std::ostringstream &svg, const Axis &x, const Axis &y) {
  constexpr int lines = 4;
  for (int i = 0; i <= lines; ++i) {
    double bytes = x.least + (x.most - x.least) * i / lines;
    double us = y.least + (y.most - y.least) * i / lines;
    svg << "<line x1='" << x.from << "' x2='" << x.to << "' y1='" << y.at(us) << "' y2='"
        << y.at(us) << "' stroke='#e4e4e4'/><text x='" << x.from - 8 << "' y='"
        << y.at(us) + 4 << "' text-anchor='end'>" << timeText(us) << "</text>\n<text x='"
        << x.at(bytes) << "' y='" << y.from + 18 << "' text-anchor='middle'>"
        << sizeText(static_cast<uint64_t>(bytes)) << "</text>\n";
  }
}

} // namespace

std::string xmlText(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string fitSvg(const MemoryCurve &curve, int64_t budgetBytes,
                   const std::string &model, const std::string &device) {
  const std::vector<MemoryPoint> &points = curve.points;
  double least = double(points.front().arenaBytes),
         most = double(points.back().arenaBytes);
  if (budgetBytes > 0 && double(budgetBytes) < 2 * most)
    least = std::min(least, double(budgetBytes)),
    most = std::max(most, double(budgetBytes));
  Axis x = axisOver(least, most, kLeft, kLeft + kWidth);
  Axis y = axisOver(points.back().stepUs, points.front().stepUs, kTop + kHeight, kTop);
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kLeft + kWidth + 30
      << "' height='" << kTop + kHeight + 60
      << "' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' "
         "fill='white'/>\n<text x='"
      << kLeft << "' y='24' font-size='14'>" << xmlText(model) << " on "
      << xmlText(device) << ": what less memory costs</text>\n";
  grid(svg, x, y);
  // A budget between two plans takes the smaller one: steps, not a slope.
  svg << "<path fill='none' stroke='#4c78a8' stroke-width='2' d='";
  for (size_t i = 0; i < points.size(); ++i) {
    double px = x.at(double(points[i].arenaBytes)), py = y.at(points[i].stepUs);
    svg << (i == 0 ? "M" : "H") << px << (i == 0 ? "," : " V") << py << " ";
  }
  svg << "H" << x.to << "'/>\n";
  for (const MemoryPoint &point : points)
    svg << "<circle cx='" << x.at(double(point.arenaBytes)) << "' cy='"
        << y.at(point.stepUs) << "' r='4' fill='#4c78a8'><title>" << point.arenaBytes
        << " bytes, " << timeText(point.stepUs) << "</title></circle>\n";
  if (budgetBytes > 0 && double(budgetBytes) >= x.least && double(budgetBytes) <= x.most)
    svg << "<line x1='" << x.at(double(budgetBytes)) << "' x2='"
        << x.at(double(budgetBytes)) << "' y1='" << kTop << "' y2='" << kTop + kHeight
        << "' stroke='#d62728' stroke-dasharray='4 3'/><text x='"
        << x.at(double(budgetBytes)) << "' y='" << kTop - 6
        << "' text-anchor='middle' fill='#d62728'>budget "
        << sizeText(static_cast<uint64_t>(budgetBytes)) << "</text>\n";
  svg << "<text x='" << kLeft + kWidth / 2 << "' y='" << kTop + kHeight + 42
      << "' text-anchor='middle'>bytes of the arena</text>\n<text "
         "transform='translate(20,"
      << kTop + kHeight / 2
      << ") rotate(-90)' text-anchor='middle'>predicted step</text>\n</svg>\n";
  return svg.str();
}

} // namespace sluice::cli
