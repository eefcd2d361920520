#include "tools/sluice/Progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace sluice::cli {

Progress::Progress()
    : start(Clock::now()), lastShown(start), terminal(isatty(STDERR_FILENO)) {}

std::string Progress::bar(const TrainProgress &progress) const {
  constexpr int width = 24;
  double share = progress.target > 0 ? static_cast<double>(progress.updates) /
                                           static_cast<double>(progress.target)
                                     : 0;
  int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  return "[" + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(width - filled), '.') + "]";
}

static std::string scaleText(const TrainProgress &progress) {
  if (!progress.lossScale)
    return "";
  char text[80];
  std::snprintf(text, sizeof text, "  scale %g",
                static_cast<double>(*progress.lossScale));
  std::string result = text;
  if (progress.skippedUpdates > 0)
    result += ", " + std::to_string(progress.skippedUpdates) + " skipped";
  return result;
}

std::string Progress::numbers(const TrainProgress &progress) {
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  double rate =
      seconds > 0 ? static_cast<double>(progress.samples - firstSample) / seconds : 0;
  double perUpdate =
      seconds / static_cast<double>(std::max<int64_t>(1, progress.updates - firstUpdate));
  auto left = static_cast<long>(perUpdate *
                                static_cast<double>(progress.target - progress.updates));
  char text[200];
  std::snprintf(
      text, sizeof text, "%lld/%lld  loss %.4f  lr %.2e  %.0f samples/s  %ld:%02ld left",
      static_cast<long long>(progress.updates), static_cast<long long>(progress.target),
      progress.loss, progress.rate, rate, left / 60, left % 60);
  return text + scaleText(progress);
}

void Progress::update(const TrainProgress &progress) {
  if (firstUpdate < 0) {
    firstUpdate = progress.updates - 1;
    firstSample = 0;
  }
  Clock::time_point now = Clock::now();
  bool last = progress.updates == progress.target;
  if (terminal) {
    if (!last && now - lastShown < std::chrono::milliseconds(100))
      return;
    std::fprintf(stderr, "\r%s %s\033[K", bar(progress).c_str(),
                 numbers(progress).c_str());
    drawn = true;
  } else {
    int64_t every = std::max<int64_t>(1, progress.target / 20);
    if (!last && progress.updates < lastLine + every)
      return;
    std::fprintf(stderr, "%s\n", numbers(progress).c_str());
    lastLine = progress.updates;
  }
  lastShown = now;
}

void Progress::finish() {
  if (drawn)
    std::fprintf(stderr, "\n");
  drawn = false;
}

} // namespace sluice::cli
