#include "tools/sluice/MemoryPicture.h"

#include "tools/sluice/Cli.h"
#include "tools/sluice/MemoryCertificate.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr double kLeft = 90, kTop = 64, kWidth = 1000, kHeight = 460;
constexpr double kCurveTop = kTop + kHeight + 34, kCurveHeight = 70;
constexpr double kLegend = kCurveTop + kCurveHeight + 34, kTable = kLegend + 34;
constexpr double kRow = 16;
constexpr const char *kPeakColour = "#d62728";

const std::map<std::string, const char *> kColours = {
    {"activations", "#4c78a8"}, {"gradients", "#f58518"}, {"workspace", "#b0b0b0"},
    {"io", "#54a24b"},          {"optimizer", "#b279a2"}, {"parameters", "#e45756"}};

std::string escaped(std::string_view text) {
  static const std::map<char, const char *> entities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string out;
  for (char c : text)
    if (auto entity = entities.find(c); entity != entities.end())
      out += entity->second;
    else
      out += c;
  return out;
}

/// The end of a name says most.
std::string shortened(std::string_view name, size_t most) {
  if (name.size() <= most)
    return std::string(name);
  return "..." + std::string(name.substr(name.size() - most + 3));
}

class Picture {
public:
  Picture(const Plan &plan, const PlanVariant &variant, const fbs::Program &program)
      : plan(plan), program(program), budget(budgetOf(plan, variant)),
        peak(peakInstant(program)),
        launches(std::max<uint32_t>(1, sizeOf(program.launches()))),
        total(std::max<uint64_t>(1, program.step_bytes())) {
    number();
  }

  std::string draw() {
    double height = kTable + kRow * static_cast<double>(rows.size() + 2) + 20;
    svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kLeft + kWidth + 30
        << "' height='" << height << "' font-family='sans-serif' font-size='11'>\n"
        << "<defs>" << hatch("again", "white") << hatch("away", "black") << "</defs>\n"
        << "<rect width='100%' height='100%' fill='white'/>\n";
    title();
    axes();
    for (const fbs::BufferInfo *buffer : rows)
      if (buffer->space() == fbs::Space::step)
        rectangle(*buffer);
    curve();
    markPeak();
    legend();
    table();
    svg << "</svg>\n";
    return svg.str();
  }

private:
  static std::string hatch(const char *id, const char *colour) {
    return std::string("<pattern id='") + id +
           "' width='6' height='6' patternUnits='userSpaceOnUse' "
           "patternTransform='rotate(45)'><rect width='2' height='6' fill='" +
           colour + "' fill-opacity='0.55'/></pattern>";
  }

  bool atPeak(const fbs::BufferInfo &buffer) const {
    auto [first, last] = launchesOf(buffer, program);
    return buffer.space() == fbs::Space::step && first <= peak.launch &&
           peak.launch <= last;
  }

  /// Rows of the table: what is live at the peak by size, then the rest by size.
  void number() {
    for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i)
      rows.push_back(program.buffers()->Get(i));
    auto key = [&](const fbs::BufferInfo &buffer) {
      return std::tuple(!atPeak(buffer), -static_cast<int64_t>(buffer.size()),
                        buffer.offset(), buffer.first());
    };
    std::sort(rows.begin(), rows.end(),
              [&](const auto *a, const auto *b) { return key(*a) < key(*b); });
    for (size_t i = 0; i < rows.size(); ++i)
      numbers[rows[i]] = i + 1;
  }

  double x(double launch) const {
    return kLeft + launch * kWidth / static_cast<double>(launches);
  }
  double tall(uint64_t bytes) const {
    return static_cast<double>(bytes) * kHeight / static_cast<double>(total);
  }

  void text(double left, double top, const std::string &what,
            const std::string &more = "") {
    svg << "<text x='" << left << "' y='" << top << "' " << more << ">" << escaped(what)
        << "</text>\n";
  }

  void title() {
    text(kLeft, 20,
         "Program '" + std::string(viewOf(program.name())) + "': step reservation of " +
             sizeText(total) + " over " + std::to_string(launches) + " launches",
         "font-size='14'");
    text(kLeft, 37,
         "lower bound " + sizeText(program.bound_bytes()) + "; the state takes " +
             sizeText(plan.memory().stateBytes) + " beside it" +
             (budget > 0 ? "; budget " + sizeText(budget) : ""));
  }

  void axes() {
    for (uint64_t i = 0; i <= 4; ++i) {
      double y = kTop + kHeight - kHeight * static_cast<double>(i) / 4;
      svg << "<line x1='" << kLeft << "' x2='" << kLeft + kWidth << "' y1='" << y
          << "' y2='" << y << "' stroke='#ddd'/>\n";
      text(kLeft - 8, y + 4, sizeText(total * i / 4), "text-anchor='end'");
    }
    for (int64_t i = 0; i <= 4; ++i) {
      int64_t launch = (launches - 1) * i / 4;
      text(x(static_cast<double>(launch) + 0.5), kTop + kHeight + 14,
           std::to_string(launch), "text-anchor='middle' fill='#666'");
    }
    text(kLeft + kWidth, kTop + kHeight + 28, "launch", "text-anchor='end' fill='#666'");
    text(kLeft - 8, kTop - 8, "address", "text-anchor='end' fill='#666'");
  }

  static std::string categoryOf(const fbs::BufferInfo &buffer) {
    return std::string(viewOf(buffer.category()));
  }
  static const char *colourOf(const fbs::BufferInfo &buffer) {
    auto colour = kColours.find(categoryOf(buffer));
    return colour == kColours.end() ? "#999" : colour->second;
  }
  static std::string markOf(const fbs::BufferInfo &buffer) {
    std::string mark = buffer.run() > 0 ? "run again" : "";
    if (buffer.space() == fbs::Space::host_step)
      mark = "on the host";
    else if (buffer.offloaded())
      mark += mark.empty() ? "offloaded" : ", offloaded";
    return mark;
  }

  void rectangle(const fbs::BufferInfo &buffer) {
    auto [first, last] = launchesOf(buffer, program);
    double left = x(static_cast<double>(first)),
           width = x(static_cast<double>(last + 1)) - left,
           height = std::max(0.5, tall(buffer.size())),
           top = kTop + kHeight - tall(buffer.offset()) - height;
    std::ostringstream place;
    place << "x='" << left << "' y='" << top << "' width='" << width << "' height='"
          << height << "'";
    bool peakOne = atPeak(buffer);
    std::string mark = markOf(buffer);
    svg << "<g><title>" << numbers[&buffer] << ": "
        << escaped(bufferText(buffer, program)) << "\n"
        << buffer.size() << " bytes at " << buffer.offset() << ", "
        << escaped(categoryOf(buffer)) << "\nlaunches " << first << " to " << last
        << (peakOne ? ", live at the peak" : "") << (mark.empty() ? "" : "\n" + mark)
        << "</title><rect " << place.str() << " fill='" << colourOf(buffer)
        << "' fill-opacity='" << (peakOne ? "0.95" : "0.55") << "' stroke='"
        << (peakOne ? "#222" : "white") << "' stroke-width='" << (peakOne ? 0.8 : 0.3)
        << "'/>";
    if (!mark.empty())
      svg << "<rect " << place.str() << " fill='url(#"
          << (buffer.offloaded() ? "away" : "again") << ")'/>";
    label(buffer, left, top, width, height);
    svg << "</g>\n";
  }

  /// The table's number, and as much of the name as there is room for.
  void label(const fbs::BufferInfo &buffer, double left, double top, double width,
             double height) {
    constexpr double letter = 5.4, size = 9;
    std::string number = std::to_string(numbers[&buffer]);
    double room = width / letter - 1;
    if (height < size + 1 || room < static_cast<double>(number.size()))
      return;
    std::string words = number;
    if (room > static_cast<double>(number.size()) + 8)
      words += " " + shortened(bufferText(buffer, program),
                               static_cast<size_t>(room) - number.size() - 1);
    svg << "<text x='" << left + 3 << "' y='" << top + height / 2 + 3 << "' font-size='"
        << size << "' fill='white' pointer-events='none'>" << escaped(words) << "</text>";
  }

  void curve() {
    std::vector<uint64_t> live(static_cast<size_t>(launches));
    for (const fbs::BufferInfo *buffer : rows) {
      auto [first, last] = launchesOf(*buffer, program);
      for (int64_t t = first; buffer->space() == fbs::Space::step && t <= last; ++t)
        live[static_cast<size_t>(t)] += buffer->size();
    }
    text(kLeft - 8, kCurveTop + 10, sizeText(total), "text-anchor='end'");
    text(kLeft - 8, kCurveTop + kCurveHeight, "live bytes",
         "text-anchor='end' fill='#666'");
    svg << "<polyline fill='#4c78a8' fill-opacity='0.25' stroke='#4c78a8' points='"
        << kLeft << "," << kCurveTop + kCurveHeight;
    for (size_t t = 0; t < live.size(); ++t) {
      double y = kCurveTop + kCurveHeight -
                 static_cast<double>(live[t]) * kCurveHeight / static_cast<double>(total);
      svg << " " << x(static_cast<double>(t)) << "," << y << " "
          << x(static_cast<double>(t + 1)) << "," << y;
    }
    svg << " " << kLeft + kWidth << "," << kCurveTop + kCurveHeight << "'/>\n";
  }

  void markPeak() {
    double at = x(static_cast<double>(peak.launch) + 0.5);
    svg << "<line x1='" << at << "' x2='" << at << "' y1='" << kTop - 4 << "' y2='"
        << kCurveTop + kCurveHeight << "' stroke='" << kPeakColour
        << "' stroke-dasharray='4 3'/>\n";
    bool right = at > kLeft + kWidth / 2;
    text(at, kTop - 8,
         "peak " + sizeText(peak.bytes) + " at " + launchText(program, peak.launch),
         std::string("fill='") + kPeakColour + "' text-anchor='" +
             (right ? "end'" : "start'"));
  }

  void legend() {
    double left = kLeft;
    auto entry = [&](const std::string &name, const std::string &fill,
                     const std::string &over, const std::string &more) {
      svg << "<rect x='" << left << "' y='" << kLegend - 11
          << "' width='14' height='12' fill='" << fill << "' " << more << "/>";
      if (!over.empty())
        svg << "<rect x='" << left << "' y='" << kLegend - 11
            << "' width='14' height='12' fill='url(#" << over << ")'/>";
      text(left + 19, kLegend, name);
      left += 40 + 6.2 * static_cast<double>(name.size());
    };
    for (auto &[name, colour] : kColours)
      entry(name, colour, "", "");
    entry("run again", kColours.at("activations"), "again", "");
    entry("offloaded", kColours.at("activations"), "away", "");
    entry("live at the peak", kColours.at("activations"), "",
          "stroke='#222' stroke-width='1.2'");
  }

  void table() {
    // right edges of numbers, left edges of words
    constexpr std::array<double, 8> at = {30, 44, 610, 700, 790, 802, 818, 900};
    auto row = [&](double y, const std::array<std::string, 8> &cells,
                   const std::string &more) {
      constexpr std::array<bool, 8> isNumber = {true, false, true,  true,
                                                true, false, false, false};
      for (size_t i = 0; i < cells.size(); ++i)
        if (!cells[i].empty())
          text(at[i] + 20, y, cells[i], more + (isNumber[i] ? " text-anchor='end'" : ""));
    };
    row(kTable, {"#", "buffer", "bytes", "offset", "launches", "", "category", "mark"},
        "font-weight='bold'");
    for (size_t i = 0; i < rows.size(); ++i) {
      const fbs::BufferInfo &buffer = *rows[i];
      auto [first, last] = launchesOf(buffer, program);
      double y = kTable + kRow * static_cast<double>(i + 1);
      svg << "<rect x='28' y='" << y - 11 << "' width='" << kLeft + kWidth - 18
          << "' height='" << kRow << "' fill='"
          << (atPeak(buffer) ? "#fdeaea"
              : i % 2        ? "#f6f6f6"
                             : "white")
          << "'/><rect x='" << at[5] + 20 << "' y='" << y - 9
          << "' width='10' height='10' fill='" << colourOf(buffer) << "'/>\n";
      std::string mark = markOf(buffer);
      if (atPeak(buffer))
        mark = mark.empty() ? "at the peak" : "at the peak, " + mark;
      row(y,
          {std::to_string(i + 1), shortened(bufferText(buffer, program), 86),
           std::to_string(buffer.size()), std::to_string(buffer.offset()),
           std::to_string(first) + "-" + std::to_string(last), "", categoryOf(buffer),
           mark},
          "");
    }
  }

  const Plan &plan;
  const fbs::Program &program;
  uint64_t budget; // 0: none
  PeakInstant peak;
  int64_t launches;
  uint64_t total;
  std::vector<const fbs::BufferInfo *> rows;
  std::map<const fbs::BufferInfo *, size_t> numbers; // in the table, from 1
  std::ostringstream svg;
};

} // namespace

std::string memorySvg(const Plan &plan, const PlanVariant &variant,
                      const fbs::Program &program) {
  return Picture(plan, variant, program).draw();
}

} // namespace sluice::cli
