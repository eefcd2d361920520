#include "tools/sluice/TaskPicture.h"

#include "tools/sluice/FitPicture.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr const char *colours[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756",
                                   "#72b7b2", "#b279a2", "#9d755d", "#bab0ac"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

struct Range {
  double least, most;
  double share(double value) const {
    return most > least ? (value - least) / (most - least) : 1;
  }
};

/// Of figures between 0 and 1 that is the range; of others theirs.
Range rangeOf(const TaskMatrix &matrix) {
  Range range{0, 1};
  for (const auto &row : matrix)
    for (double value : row)
      range.least = std::min(range.least, value),
      range.most = std::max(range.most, value);
  return range;
}

void begin(std::ostringstream &svg, double width, double height,
           const std::string &title) {
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << width << "' height='"
      << height
      << "' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' "
         "fill='white'/>\n<text x='20' y='24' font-size='14'>"
      << xmlText(title) << "</text>\n";
}

} // namespace

std::string taskHeatMap(const TaskMatrix &matrix, const std::vector<std::string> &tasks,
                        const std::string &metric) {
  constexpr double left = 130, top = 70, cell = 64, height = 34;
  std::ostringstream svg;
  begin(svg, left + cell * double(tasks.size()) + 20,
        top + height * double(matrix.size()) + 20,
        metric + " on each task (columns) after each (rows)");
  Range range = rangeOf(matrix);
  for (size_t i = 0; i < tasks.size(); ++i)
    svg << "<text x='" << left + cell * (double(i) + 0.5) << "' y='" << top - 8
        << "' text-anchor='middle'>" << xmlText(tasks[i]) << "</text>\n";
  for (size_t t = 0; t < matrix.size(); ++t) {
    double y = top + height * double(t);
    svg << "<text x='" << left - 8 << "' y='" << y + height / 2 + 4
        << "' text-anchor='end'>" << xmlText("after " + tasks[t]) << "</text>\n";
    for (size_t i = 0; i < matrix[t].size(); ++i) {
      double share = range.share(matrix[t][i]), x = left + cell * double(i);
      svg << "<rect x='" << x << "' y='" << y << "' width='" << cell - 2 << "' height='"
          << height - 2 << "' fill='#4c78a8' fill-opacity='" << number(share)
          << "'/><text x='" << x + cell / 2 << "' y='" << y + height / 2 + 4
          << "' text-anchor='middle' fill='" << (share > 0.6 ? "white" : "black") << "'>"
          << number(matrix[t][i]) << "</text>\n";
    }
  }
  svg << "</svg>\n";
  return svg.str();
}

std::string taskCurves(const TaskMatrix &matrix, const std::vector<std::string> &tasks,
                       const std::string &metric) {
  constexpr double left = 60, top = 50, width = 480, height = 280;
  std::ostringstream svg;
  begin(svg, left + width + 160, top + height + 50, metric + " over the tasks learned");
  Range range = rangeOf(matrix);
  auto across = [&](size_t t) {
    return left + width * (matrix.size() > 1 ? double(t) / double(matrix.size() - 1) : 0);
  };
  auto up = [&](double value) { return top + height * (1 - range.share(value)); };
  for (int line = 0; line <= 4; ++line) {
    double value = range.least + (range.most - range.least) * line / 4;
    svg << "<line x1='" << left << "' x2='" << left + width << "' y1='" << up(value)
        << "' y2='" << up(value) << "' stroke='#e4e4e4'/><text x='" << left - 8 << "' y='"
        << up(value) + 4 << "' text-anchor='end'>" << number(value) << "</text>\n";
  }
  for (size_t t = 0; t < matrix.size(); ++t)
    svg << "<text x='" << across(t) << "' y='" << top + height + 20
        << "' text-anchor='middle'>" << xmlText(tasks[t]) << "</text>\n";
  for (size_t i = 0; i < tasks.size(); ++i) {
    const char *colour = colours[i % std::size(colours)];
    svg << "<polyline fill='none' stroke='" << colour << "' stroke-width='2' points='";
    for (size_t t = 0; t < matrix.size(); ++t)
      svg << across(t) << "," << up(matrix[t][i]) << " ";
    svg << "'/><text x='" << left + width + 16 << "' y='" << top + 16 * double(i) + 8
        << "' fill='" << colour << "'>" << xmlText(tasks[i]) << "</text>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

} // namespace sluice::cli
