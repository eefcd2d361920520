#pragma once
// A checkpoint that all ranks write together: each its part of the tensors,
// DIR/step-00000010.rank-1-of-2.G.safetensors, and last rank 0 the checkpoint itself,
// DIR/step-00000010.safetensors, which has no tensors but lists the parts with their
// checksums. Until it is there the parts count for nothing, and the generation G keeps
// those of an earlier checkpoint of the same step untouched. Any number of ranks loads
// it.

#include "runtime/Safetensors.h"
#include "runtime/comm/Communicator.h"

namespace sluice {

/// A rank's own elements of a tensor, from `begin` on; its `shape` is their count.
struct SliceToWrite {
  TensorToWrite tensor;
  uint64_t begin = 0;
  std::vector<int64_t> wholeShape;
};

/// What a rank has to write.
struct ShardContent {
  std::vector<TensorToWrite> tensors; ///< the same on all ranks: each writes some
  std::vector<SliceToWrite> slices;   ///< of the same tensors on all ranks
  /// So often the ranks that write meet those that are done: well below the timeout.
  std::chrono::milliseconds patience{10000};
};

/// Writes the checkpoint `path`. All ranks call it, and get an error if one of them does.
/// Those that are done hear from those that still write, so that no timeout passes.
/// `prepared`: whether this rank could do what comes before.
Status saveShards(Communicator &comm, const std::string &path, int64_t step,
                  const ShardContent &content, Metadata metadata,
                  const AtomicFile::Observer &observer, Status prepared);

/// A file with its checksum verified, if it has one, and with the tensors of its parts,
/// if it lists some: damaged when one of them is missing or not the one that was listed.
Result<SafetensorsFile> openWithShards(const std::string &path);

/// Removes parts that no checkpoint of the folder lists, and what interrupted writes of
/// parts have left.
void removeUnlistedShards(const std::string &folder);

} // namespace sluice
