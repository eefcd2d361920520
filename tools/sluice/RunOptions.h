#pragma once
// What train, eval and infer share: opening a plan, its data and its state.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"
#include "tools/sluice/Cli.h"

#include <memory>

namespace sluice::cli {

struct RunOptions {
  std::string plan;
  std::vector<std::string> data, buckets;
  std::string weights, checkpoint;
  int threads = 0;
  uint32_t variant = 0;
  std::string level;
  bool noShuffle = false;
  std::optional<uint64_t> seed; // in place of the plan's; of no option
};

/// Adds the options above (`checkpoint` with the given help).
void addRunOptions(CLI::App *app, RunOptions &options, const char *checkpointHelp);

/// Opens the plan and creates its session; loads --weights when given.
Result<std::unique_ptr<Session>> openSession(const RunOptions &options,
                                             const Console &console,
                                             size_t traceEvents = 0, bool pattern = false,
                                             Communicator *communicator = nullptr);

/// The source for a program's inputs; shuffled when `shuffle`. `buckets` are names, for
/// each set of data or for all.
Result<std::unique_ptr<BatchSource>> openSource(const Session &session,
                                                std::string_view program,
                                                const std::vector<std::string> &data,
                                                const std::vector<std::string> &buckets,
                                                bool shuffle);

/// Resident set of this process now and at its highest, bytes.
uint64_t residentBytes();
uint64_t peakResidentBytes();
/// Resident bytes now that belong to no file: what the process itself holds.
uint64_t anonymousBytes();

} // namespace sluice::cli
