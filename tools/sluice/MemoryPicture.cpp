#include "tools/sluice/MemoryPicture.h"
#include "tools/sluice/Cli.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace sluice::cli {
namespace {

constexpr double kLeft = 90, kTop = 40, kWidth = 1000, kHeight = 520;

const std::map<std::string, const char *> kColours = {{"activations", "#4c78a8"},
                                                      {"gradients", "#f58518"},
                                                      {"workspace", "#b0b0b0"},
                                                      {"io", "#54a24b"},
                                                      {"optimizer", "#b279a2"}};

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text)
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    default:
      out += c;
    }
  return out;
}

int64_t launchCount(const fbs::Program &program) {
  return std::max<int64_t>(1, sizeOf(program.launches()));
}

/// Live range in picture columns: inputs are there before the first launch, outputs after
/// the last.
std::pair<int64_t, int64_t> columns(const fbs::BufferInfo &buffer, int64_t launches) {
  int64_t first = std::clamp<int64_t>(buffer.first(), 0, launches - 1);
  int64_t last = std::clamp<int64_t>(buffer.last(), first, launches - 1);
  return {first, last};
}

void axis(std::ostringstream &svg, double bytesPerPixel, uint64_t total) {
  for (int i = 0; i <= 4; ++i) {
    double y = kTop + kHeight - kHeight * i / 4;
    svg << "<line x1='" << kLeft << "' x2='" << kLeft + kWidth << "' y1='" << y
        << "' y2='" << y << "' stroke='#ddd'/><text x='" << kLeft - 8 << "' y='" << y + 4
        << "' text-anchor='end'>" << sizeText(total * static_cast<uint64_t>(i) / 4)
        << "</text>\n";
  }
  (void)bytesPerPixel;
}

void legend(std::ostringstream &svg) {
  double x = kLeft;
  for (auto &[name, colour] : kColours) {
    svg << "<rect x='" << x << "' y='" << kTop + kHeight + 30
        << "' width='12' height='12' fill='" << colour << "'/><text x='" << x + 18
        << "' y='" << kTop + kHeight + 41 << "'>" << name << "</text>\n";
    x += 120;
  }
}

} // namespace

PeakInstant peakInstant(const fbs::Program &program) {
  int64_t launches = launchCount(program);
  std::vector<uint64_t> live(static_cast<size_t>(launches));
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(i);
    auto [first, last] = columns(buffer, launches);
    for (int64_t t = first; t <= last; ++t)
      live[static_cast<size_t>(t)] += buffer.size();
  }
  auto most = std::max_element(live.begin(), live.end());
  return {most - live.begin(), *most};
}

std::string memorySvg(const fbs::Program &program) {
  int64_t launches = launchCount(program);
  uint64_t total = std::max<uint64_t>(1, program.step_bytes());
  double perLaunch = kWidth / static_cast<double>(launches),
         perByte = kHeight / static_cast<double>(total);
  std::ostringstream svg;
  svg << "<svg xmlns='http://www.w3.org/2000/svg' width='" << kLeft + kWidth + 20
      << "' height='" << kTop + kHeight + 60
      << "' font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' "
         "fill='white'/>\n"
      << "<text x='" << kLeft << "' y='22' font-size='14'>Program '"
      << escaped(viewOf(program.name())) << "': step reservation of " << sizeText(total)
      << " (lower bound " << sizeText(program.bound_bytes()) << ") over " << launches
      << " launches</text>\n";
  axis(svg, perByte, total);
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(i);
    auto [first, last] = columns(buffer, launches);
    std::string category(viewOf(buffer.category()));
    auto colour = kColours.find(category);
    double height = std::max(0.5, static_cast<double>(buffer.size()) * perByte);
    svg << "<rect x='" << kLeft + static_cast<double>(first) * perLaunch << "' y='"
        << kTop + kHeight - static_cast<double>(buffer.offset()) * perByte - height
        << "' width='" << static_cast<double>(last - first + 1) * perLaunch
        << "' height='" << height << "' fill='"
        << (colour == kColours.end() ? "#999" : colour->second)
        << "' fill-opacity='0.8' stroke='white' stroke-width='0.3'><title>"
        << escaped(viewOf(buffer.name())) << ": " << buffer.size() << " bytes at "
        << buffer.offset() << ", " << escaped(category) << ", launches " << first
        << " to " << last << "</title></rect>\n";
  }
  PeakInstant peak = peakInstant(program);
  double x = kLeft + (static_cast<double>(peak.launch) + 0.5) * perLaunch;
  svg << "<line x1='" << x << "' x2='" << x << "' y1='" << kTop << "' y2='"
      << kTop + kHeight << "' stroke='#d62728' stroke-dasharray='4 3'/><text x='" << x + 4
      << "' y='" << kTop - 4 << "' fill='#d62728'>peak " << sizeText(peak.bytes)
      << "</text>\n";
  legend(svg);
  svg << "</svg>\n";
  return svg.str();
}

} // namespace sluice::cli
