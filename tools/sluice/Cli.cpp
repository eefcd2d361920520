#include "tools/sluice/Cli.h"
#include "runtime/AtomicFile.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace sluice::cli {

void Console::line(const std::string &text) const {
  if (!json)
    std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Console::message(const std::string &text) const {
  std::fprintf(stderr, "%s\n", text.c_str());
}

int Console::fail(const Status &status) const {
  message("error: " + status.message);
  if (json) {
    Json object = {{"error", status.message}, {"code", static_cast<int>(status.code)}};
    std::printf("%s\n", object.dump().c_str());
  }
  return static_cast<int>(status.code);
}

int Console::refuse(const std::vector<std::string> &problems) const {
  for (const std::string &problem : problems)
    message("error: " + problem);
  if (json) {
    Json object = result;
    object["errors"] = problems;
    object["code"] = static_cast<int>(StatusCode::refused);
    std::printf("%s\n", object.dump().c_str());
  }
  return static_cast<int>(StatusCode::refused);
}

int Console::finish() const {
  if (json)
    std::printf("%s\n", result.dump().c_str());
  std::fflush(stdout);
  return 0;
}

Status writeWholeFile(const std::string &path, const std::string &text) {
  AtomicFile file(path);
  if (Status status = file.open(); !status.ok())
    return status;
  if (Status status = file.write(text.data(), text.size()); !status.ok())
    return status;
  return file.commit();
}

std::string sizeText(uint64_t bytes) {
  char text[32];
  if (bytes < 10240)
    std::snprintf(text, sizeof text, "%llu B", static_cast<unsigned long long>(bytes));
  else if (bytes < (10ull << 20))
    std::snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 0x1p10);
  else if (bytes < (10ull << 30))
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  else
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / 0x1p30);
  return text;
}

std::string timeText(double us) {
  char text[32];
  std::snprintf(text, sizeof text,
                us < 1e3   ? "%.1f us"
                : us < 1e4 ? "%.0f us"
                : us < 1e7 ? "%.1f ms"
                           : "%.1f s",
                us < 1e4   ? us
                : us < 1e7 ? us / 1e3
                           : us / 1e6);
  return text;
}

std::string tableText(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths;
  for (auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size())
        widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (auto &row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      std::string pad(widths[i] - row[i].size(), ' ');
      line += i == 0 ? row[i] + pad : "  " + pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (!text.empty())
    text.pop_back();
  return text;
}

std::optional<std::vector<int64_t>> parseShape(const std::string &text) {
  std::vector<int64_t> shape;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    int64_t size = 0;
    auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0 || (next != end && *next != 'x'))
      return std::nullopt;
    shape.push_back(size);
    at = next == end ? end : next + 1;
    if (next != end && at == end)
      return std::nullopt; // a trailing x
  }
  return shape;
}

std::optional<std::string>
parseShapes(const std::vector<std::string> &options,
            std::map<std::string, std::vector<int64_t>> &shapes,
            std::map<std::string, int64_t> &dimensions) {
  for (const std::string &option : options) {
    size_t equals = option.rfind('=');
    auto shape = equals == std::string::npos ? std::nullopt
                                             : parseShape(option.substr(equals + 1));
    if (!shape || equals == 0)
      return "--shape '" + option + "': expected INPUT=4x18x1024, or DIMENSION=32";
    std::string name = option.substr(0, equals);
    if (shape->size() == 1)
      dimensions[name] = shape->front();
    else
      shapes[name] = *shape;
  }
  return std::nullopt;
}

} // namespace sluice::cli
