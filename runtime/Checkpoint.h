#pragma once
// Checkpoints: DIR/step-00000010.safetensors, one file per checkpoint, written
// atomically. It holds every saved state tensor under its logical name; what was lost
// with a process is the window of micro-batches since the last update. Ranks may write
// one together (CheckpointShards.h); any number of ranks loads either kind.

#include "runtime/AtomicFile.h"
#include "runtime/Session.h"

#include <string>
#include <vector>

namespace sluice {

struct CheckpointOptions {
  int keep = 2; // newest files kept, the one just written included
  AtomicFile::Observer observer;
  /// Of a session that shares updates: every rank writes a part of the tensors, and all
  /// ranks call saveCheckpoint. So they always do where ranks hold state in shards.
  bool byAllRanks = false;
};

/// Writes the session's state; older checkpoints beyond `keep` are removed only when the
/// new one is on the disk. Refused inside a window of accumulated micro-batches (flush
/// first). Gives the path.
Result<std::string> saveCheckpoint(const Session &session, const std::string &folder,
                                   const CheckpointOptions &options = {});

struct LoadOptions {
  /// Tensors of the plan that are larger along one dimension keep what the file has, and
  /// go on from their present values behind it (HeadGrowth.h). Else they are refused.
  bool growsHeads = false;
};

struct CheckpointInfo {
  std::string path;
  int64_t updates = 0;
  int64_t samples = 0;
  std::vector<std::string>
      notes; // damaged files skipped, what was converted, other differences
};

/// Restores the newest checkpoint of the folder (or the file) that is whole: bit for bit
/// where the plan stores its state in the same forms (runtime/StoredForm.h), by way of
/// the exact f32 and with a note where not. One that is whole but of another model is
/// refused with the names that differ, and the session is left as it was.
Result<CheckpointInfo> loadCheckpoint(Session &session, const std::string &folderOrFile,
                                      const LoadOptions &options = {});

/// Step numbers of the checkpoints in a folder, newest first, whole or not; empty when
/// there is no such folder.
std::vector<int64_t> listCheckpoints(const std::string &folder);

} // namespace sluice
