#include "tools/sluice/RunOptions.h"
#include "tools/sluice/AllocationCount.h"

#include <cstdio>
#include <cstring>
#include <sys/resource.h>
#include <unistd.h>

namespace sluice::cli {

void addRunOptions(CLI::App *app, RunOptions &options, const char *checkpointHelp) {
  app->add_option("plan", options.plan, "plan file")->required();
  app->add_option("--data", options.data,
                  "NAME=idx:FILE[.gz],scale=1/255,mean=0.1307 | npy:FILE | npz:FILE#name "
                  "| safetensors:FILE#name | "
                  "text:FILE,shift=1 | tokens:FILE | csv:FILE,columns=1-20,target=21; "
                  "NAME is the model's input")
      ->required();
  app->add_option("--bucket", options.buckets,
                  "of a plan of several shapes: the one that takes the data, such as "
                  "T=64; by default the smallest that does. --data with the same inputs "
                  "again begins another set, with a bucket of its own");
  app->add_option("--variant", options.variant,
                  "of a plan with a memory ladder: its number, from 0 (most memory)");
  app->add_option("--weights", options.weights,
                  "safetensors file with parameters by name");
  app->add_option("--checkpoint", options.checkpoint, checkpointHelp);
  app->add_option("--threads", options.threads,
                  "workers; at most, and by default, as planned");
  app->add_option("--level", options.level,
                  "x86-64-v3, x86-64-v4, avx512-bf16 (products of bf16 by dot products) "
                  "or amx (on the matrix unit); by default the best there is")
      ->check(CLI::IsMember({"x86-64-v3", "x86-64-v4", "avx512-bf16", "amx"}));
  app->add_flag("--no-shuffle", options.noShuffle, "read the data in order of the file");
}

Result<std::unique_ptr<Session>> openSession(const RunOptions &options,
                                             const Console &console, size_t traceEvents,
                                             bool pattern, Communicator *communicator) {
  auto plan = PlanReader::readFile(options.plan);
  if (!plan)
    return plan.status();
  SessionOptions session;
  session.threads = options.threads;
  session.variant = options.variant;
  session.seed = options.seed;
  if (!options.level.empty())
    session.level = levelByName(options.level);
  session.traceEvents = traceEvents;
  if (pattern)
    session.stepPattern = uint8_t{0xa5};
  session.communicator = communicator;
  if (!communicator || communicator->rank() == 0)
    session.log = [&console](const std::string &text) {
      console.message("note: " + text);
    };
  session.aroundProgram = countAllocations;
  auto created = Session::create(*plan, session);
  if (created && !options.weights.empty())
    if (Status status = (*created)->loadWeights(options.weights); !status.ok())
      return status;
  return created;
}

namespace {
/// The number, kibibytes, behind "NAME:" in a file of /proc/self; 0 if it is not there.
uint64_t processBytes(const char *path, const char *name) {
  uint64_t kibibytes = 0;
  if (FILE *file = std::fopen(path, "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file))
      if (std::strncmp(line, name, std::strlen(name)) == 0)
        kibibytes = std::strtoull(line + std::strlen(name) + 1, nullptr, 10);
    std::fclose(file);
  }
  return kibibytes * 1024;
}
} // namespace

uint64_t residentBytes() { return processBytes("/proc/self/status", "VmRSS"); }
uint64_t peakResidentBytes() { return processBytes("/proc/self/status", "VmHWM"); }
// The counters of /proc/self/status may lag by megabytes where there are many cores; the
// walk behind smaps_rollup is exact.
uint64_t anonymousBytes() { return processBytes("/proc/self/smaps_rollup", "Anonymous"); }

} // namespace sluice::cli
