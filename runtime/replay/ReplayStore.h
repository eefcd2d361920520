#pragma once
// A replay buffer on the disk: FOLDER/replay.state, replaced whole, and a log of what was
// added since, FOLDER/replay-GENERATION.log. What `add` has acknowledged is there after
// kill -9 and after a loss of power: the log is written and synced first. Where a record
// is cut or damaged the log ends. What a buffer keeps follows from what it was offered,
// so that the log is read by offering again.

#include "runtime/AtomicFile.h"
#include "runtime/replay/ReplayBuffer.h"

namespace sluice {

/// One sample to add: a pointer per field.
struct ReplaySample {
  std::vector<const void *> fields;
  int64_t label = 0, task = 0;
};

class ReplayStore {
public:
  /// `empty` says fields and options; a folder of others is refused. `observer` is called
  /// before every system call that changes the disk.
  static Result<ReplayStore> open(ReplayBuffer empty, std::string folder,
                                  AtomicFile::Observer observer = {});
  ReplayStore(ReplayStore &&other) noexcept;
  ReplayStore(const ReplayStore &) = delete;
  ReplayStore &operator=(const ReplayStore &) = delete;
  ~ReplayStore();

  const ReplayBuffer &buffer() const { return kept; }

  /// All of them or, with an error, none.
  Status add(std::span<const ReplaySample> samples);
  Status setForgetting(int64_t task, double bestAccuracy, double accuracy, double epochs);
  /// The log into the state; `add` does it when the log has outgrown the buffer.
  Status compact();

private:
  ReplayStore(ReplayBuffer empty, std::string folder, AtomicFile::Observer observer)
      : kept(std::move(empty)), folder(std::move(folder)), observer(std::move(observer)) {
  }
  Status load();
  Status loadState();
  Status readLog();
  Status openLog();
  Status append(const std::vector<uint8_t> &record);
  bool apply(std::span<const uint8_t> record);
  void removeOthers() const;
  std::string pathOf(const std::string &name) const { return folder + "/" + name; }
  std::string logName() const { return "replay-" + std::to_string(generation) + ".log"; }
  Status problem(const char *what, const std::string &name) const;
  void observe(const char *what) const {
    if (observer)
      observer(what);
  }

  ReplayBuffer kept;
  std::string folder;
  AtomicFile::Observer observer;
  uint64_t generation = 0; // of the state that the log follows
  int log = -1;
  uint64_t logBytes = 0;
};

/// A buffer's state in a file of its own, replaced whole, with a checksum.
Status saveReplay(const ReplayBuffer &buffer, const std::string &path,
                  uint64_t generation = 0, const AtomicFile::Observer &observer = {});
/// Into a buffer of the same fields and options. Gives the generation.
Result<uint64_t> loadReplay(ReplayBuffer &buffer, const std::string &path);

} // namespace sluice
