#include "tools/sluice/FitPicture.h"
#include "tools/sluice/FitTable.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr double kLeft = 90, kTop = 50, kWidth = 640, kHeight = 360;
constexpr const char *kColours[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2",
                                    "#e45756", "#72b7b2", "#9d755d", "#eeca3b"};

struct Point {
  double ranks = 1, rate = 0;
  const FitRow *row = nullptr;
};
using Lines = std::map<std::string, std::vector<Point>>;

std::string nameOf(const FitRow &row) {
  std::string name = row.device.name;
  if (!row.zero.empty())
    name += ", zero " + row.zero;
  if (row.budget)
    name += ", " + sizeText(static_cast<uint64_t>(*row.budget));
  return name;
}

/// Ranks in doublings, samples a second in tenfolds: what scales is a straight line.
struct Axes {
  double mostRanks = 2, leastRate = 1, mostRate = 10;
  double x(double ranks) const {
    return kLeft + std::log2(ranks) / std::log2(mostRanks) * kWidth;
  }
  double y(double rate) const {
    double part = std::log(rate / leastRate) / std::log(mostRate / leastRate);
    return kTop + kHeight - part * kHeight;
  }
};

Axes axesOf(const Lines &lines) {
  Axes axes;
  axes.leastRate = 1e300, axes.mostRate = 0;
  for (const auto &[name, points] : lines)
    for (const Point &point : points) {
      axes.mostRanks = std::max(axes.mostRanks, point.ranks);
      axes.leastRate = std::min(axes.leastRate, point.rate);
      axes.mostRate = std::max(axes.mostRate, point.rate);
    }
  axes.leastRate /= 1.3, axes.mostRate *= 1.3;
  return axes;
}

void grid(std::ostringstream &svg, const Axes &axes) {
  for (double ranks = 1; ranks <= axes.mostRanks; ranks *= 2)
    svg << "<line y1='" << kTop << "' y2='" << kTop + kHeight << "' x1='" << axes.x(ranks)
        << "' x2='" << axes.x(ranks) << "' stroke='#e4e4e4'/><text x='" << axes.x(ranks)
        << "' y='" << kTop + kHeight + 18 << "' text-anchor='middle'>" << ranks
        << "</text>\n";
  constexpr int lines = 4;
  for (int i = 0; i <= lines; ++i) {
    double rate =
        axes.leastRate * std::pow(axes.mostRate / axes.leastRate, double(i) / lines);
    char text[24];
    std::snprintf(text, sizeof text, "%.3g", rate);
    svg << "<line x1='" << kLeft << "' x2='" << kLeft + kWidth << "' y1='" << axes.y(rate)
        << "' y2='" << axes.y(rate) << "' stroke='#e4e4e4'/><text x='" << kLeft - 8
        << "' y='" << axes.y(rate) + 4 << "' text-anchor='end'>" << text << "</text>\n";
  }
}

void drawLine(std::ostringstream &svg, const Axes &axes, const std::string &name,
              const std::vector<Point> &points, size_t index) {
  const char *colour = kColours[index % std::size(kColours)];
  svg << "<polyline fill='none' stroke='" << colour << "' stroke-width='2' points='";
  for (const Point &point : points)
    svg << axes.x(point.ranks) << "," << axes.y(point.rate) << " ";
  svg << "'/>\n";
  for (const Point &point : points) {
    const FitRow &row = *point.row;
    svg << "<circle cx='" << axes.x(point.ranks) << "' cy='" << axes.y(point.rate)
        << "' r='4' stroke='" << colour << "' fill='" << (row.fits() ? colour : "white")
        << "'><title>" << xmlText(name) << ": " << row.ranks << " ranks, "
        << row.arenaBytes << " bytes a rank" << (row.fits() ? "" : " (does not fit)")
        << ", " << timeText(row.times.us) << ", bound by " << row.times.boundBy()
        << "</title></circle>\n";
  }
  double at = kTop + 14 + 16 * double(index);
  svg << "<text x='" << kLeft + 10 << "' y='" << at << "' fill='" << colour << "'>"
      << xmlText(name) << "</text>\n";
}

} // namespace

std::string tableSvg(const FitTable &table) {
  Lines lines;
  for (const FitRow &row : table.rows) {
    double rate = row.samples > 0 ? row.samplesPerSecond() : 1e6 / row.times.us;
    lines[nameOf(row)].push_back({double(row.ranks), rate, &row});
  }
  for (auto &[name, points] : lines)
    std::sort(points.begin(), points.end(),
              [](const Point &a, const Point &b) { return a.ranks < b.ranks; });
  Axes axes = axesOf(lines);
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kLeft + kWidth + 30
      << "' height='" << kTop + kHeight + 60
      << "' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' "
         "fill='white'/>\n<text x='"
      << kLeft << "' y='24' font-size='14'>" << xmlText(table.model)
      << ": samples a second by ranks (predicted; hollow: does not fit)</text>\n";
  grid(svg, axes);
  size_t index = 0;
  for (const auto &[name, points] : lines)
    drawLine(svg, axes, name, points, index++);
  svg << "<text x='" << kLeft + kWidth / 2 << "' y='" << kTop + kHeight + 42
      << "' text-anchor='middle'>ranks</text>\n</svg>\n";
  return svg.str();
}

} // namespace sluice::cli
