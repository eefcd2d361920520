#include "runtime/CheckpointShards.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <set>
#include <system_error>

namespace sluice {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".safetensors", rankMark = ".rank-";

/// "step-00000010.rank-1-of-2.0.safetensors".
static std::string shardName(std::string_view stem, int rank, int ranks,
                             int64_t generation) {
  return std::string(stem) + std::string(rankMark) + std::to_string(rank) + "-of-" +
         std::to_string(ranks) + "." + std::to_string(generation) + std::string(suffix);
}

static bool isShardName(std::string_view name) {
  return name.starts_with("step-") && name.ends_with(suffix) &&
         name.find(rankMark) != std::string_view::npos &&
         name.find('/') == std::string_view::npos;
}

/// Behind those of all parts that are there, listed or not.
static int64_t nextGeneration(const fs::path &folder, const std::string &stem) {
  int64_t next = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(stem + std::string(rankMark)) || !isShardName(name))
      continue;
    name.resize(name.size() - suffix.size());
    size_t digits = name.rfind('.') + 1;
    int64_t generation = 0;
    std::from_chars(name.data() + digits, name.data() + name.size(), generation);
    next = std::max(next, generation + 1);
  }
  return next;
}

/// Largest tensors first, each to the rank that has least to write.
static std::vector<TensorToWrite> partOf(int rank, int ranks,
                                         std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite *> bySize;
  for (const TensorToWrite &tensor : tensors)
    bySize.push_back(&tensor);
  std::ranges::sort(bySize, [](const TensorToWrite *a, const TensorToWrite *b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->name < b->name;
  });
  std::vector<uint64_t> bytes(static_cast<size_t>(ranks));
  std::vector<TensorToWrite> own;
  for (const TensorToWrite *tensor : bySize) {
    auto least = std::ranges::min_element(bytes);
    if (least - bytes.begin() == rank)
      own.push_back(*tensor);
    *least += tensor->bytes;
  }
  return own;
}

namespace {

constexpr size_t checksumRoom = 32;

/// How a rank fared, as the others are told.
struct Outcome {
  int32_t code = 0;
  char checksum[checksumRoom] = {};
  char text[476] = {};

  void set(const Status &status) {
    code = static_cast<int32_t>(status.code);
    std::memcpy(text, status.message.data(),
                std::min(status.message.size(), sizeof text - 1));
  }
};

/// One save, as one rank sees it.
class Saving {
public:
  Saving(Communicator &comm, const std::string &path, int64_t step,
         std::chrono::milliseconds patience)
      : comm(comm), path(path), step(step), patience(patience),
        folder(fs::path(path).parent_path()), stem(fs::path(path).stem().string()),
        outcomes(comm.size()) {
    for (uint64_t r = 0; r < outcomes.size(); ++r)
      shards.push_back({r, r + 1});
  }

  /// Tells the others; the first rank's error, if there is one, on all.
  Status exchange(const Outcome &own, std::string_view what) {
    outcomes[comm.rank()] = own;
    const Part part{outcomes.data(), outcomes.size() * sizeof(Outcome)};
    if (Status status = comm.allGather({&part, 1}, sizeof(Outcome), shards,
                                       {"checkpoint", step, what});
        !status.ok())
      return status;
    for (int r = 0; r < comm.size(); ++r)
      if (outcomes[r].code != 0)
        return {static_cast<StatusCode>(outcomes[r].code),
                r == comm.rank()
                    ? own.text
                    : "rank " + std::to_string(r) + " of " + std::to_string(comm.size()) +
                          ": " + outcomes[r].text};
    return Status::success();
  }
  /// Runs `work` on all ranks. Meanwhile they meet again and again, each within a share
  /// of the timeout, until it is done on all of them.
  Status together(const std::function<Outcome()> &work, std::string_view what) {
    std::future<Outcome> running;
    try {
      running = std::async(std::launch::async, work);
    } catch (const std::system_error &) { // no thread to be had: the others wait
      std::promise<Outcome> done;
      done.set_value(work());
      running = done.get_future();
    }
    for (int64_t busy = 1; busy > 0;) {
      busy = running.wait_for(patience) != std::future_status::ready;
      const Part part{&busy, sizeof busy};
      if (Status status =
              comm.allReduce({&part, 1}, SumType::i64, {"checkpoint", step, what});
          !status.ok()) {
        running.wait();
        return status;
      }
    }
    return exchange(running.get(), what);
  }
  Status agreeOnGeneration(const Status &prepared) {
    if (comm.rank() == 0 && prepared.ok())
      generation = nextGeneration(folder, stem);
    Outcome own;
    own.set(prepared);
    if (Status status = exchange(own, "folder"); !status.ok())
      return status;
    const Part part{&generation, sizeof generation};
    return comm.broadcast({&part, 1}, 0, {"checkpoint", step, "generation"});
  }
  std::string nameOf(int rank) const {
    return shardName(stem, rank, comm.size(), generation);
  }
  std::string ownPath() const { return (folder / nameOf(comm.rank())).string(); }
  Status writePart(const ShardContent &content, Metadata metadata,
                   const AtomicFile::Observer &observer) {
    std::vector<TensorToWrite> tensors =
        partOf(comm.rank(), comm.size(), content.tensors);
    for (const SliceToWrite &slice : content.slices) {
      tensors.push_back(slice.tensor);
      metadata[sliceKey(slice.tensor.name)] = sliceText(slice.begin, slice.wholeShape);
    }
    return together([&] { return writeOwn(tensors, metadata, observer); }, "parts");
  }
  Outcome writeOwn(std::span<const TensorToWrite> tensors, const Metadata &metadata,
                   const AtomicFile::Observer &observer) {
    Outcome own;
    Status status = writeSafetensors(ownPath(), tensors, metadata, observer);
    if (status.ok()) {
      auto file = SafetensorsFile::open(ownPath());
      if (file)
        std::memcpy(own.checksum, file->checksum().data(),
                    std::min(file->checksum().size(), checksumRoom));
      else
        status = file.status();
    }
    own.set(status);
    return own;
  }
  /// By rank 0, who has to see what the others have written.
  Status writeList(Metadata metadata, const AtomicFile::Observer &observer) {
    metadata["shards"] = std::to_string(comm.size());
    for (int r = 0; r < comm.size(); ++r) {
      std::string checksum(outcomes[r].checksum,
                           strnlen(outcomes[r].checksum, checksumRoom));
      auto file = SafetensorsFile::open((folder / nameOf(r)).string());
      if (!file || file->checksum() != checksum)
        return Status::refused("rank " + std::to_string(r) + " has written '" +
                               nameOf(r) + "', but rank 0 does not find it in '" +
                               folder.string() +
                               "': all ranks need the same folder for checkpoints");
      metadata["shard/" + std::to_string(r)] = nameOf(r) + " " + checksum;
    }
    return writeSafetensors(path, {}, metadata, observer);
  }
  Status finish(const Metadata &metadata, const AtomicFile::Observer &observer) {
    auto write = [&] {
      Outcome own;
      if (comm.rank() == 0)
        own.set(writeList(metadata, observer));
      return own;
    };
    return together(write, "list");
  }

private:
  Communicator &comm;
  const std::string &path;
  int64_t step;
  std::chrono::milliseconds patience;
  fs::path folder;
  std::string stem;
  int64_t generation = 0;
  std::vector<Outcome> outcomes;
  std::vector<ElementRange> shards;
};

} // namespace

Status saveShards(Communicator &comm, const std::string &path, int64_t step,
                  const ShardContent &content, Metadata metadata,
                  const AtomicFile::Observer &observer, Status prepared) {
  Saving saving(comm, path, step, content.patience);
  if (Status status = saving.agreeOnGeneration(prepared); !status.ok())
    return status;
  Status status = saving.writePart(content, metadata, observer);
  if (status.ok())
    status = saving.finish(metadata, observer);
  std::error_code error;
  if (!status.ok())
    fs::remove(saving.ownPath(), error);
  return status;
}

/// The listed parts: names and checksums.
static Result<std::vector<std::pair<std::string, std::string>>>
listOf(const SafetensorsFile &file) {
  std::vector<std::pair<std::string, std::string>> list;
  auto count = file.metadata().find("shards");
  if (count == file.metadata().end())
    return list;
  int shards = 0;
  std::from_chars(count->second.data(), count->second.data() + count->second.size(),
                  shards);
  for (int r = 0; r < std::min(shards, maxRanks); ++r) {
    auto shard = file.metadata().find("shard/" + std::to_string(r));
    size_t space =
        shard == file.metadata().end() ? std::string::npos : shard->second.find(' ');
    if (space == std::string::npos || !isShardName(shard->second.substr(0, space)))
      return Status::damaged("'" + file.name() + "' is damaged: its part " +
                             std::to_string(r) + " of " + count->second +
                             " is not listed");
    list.push_back({shard->second.substr(0, space), shard->second.substr(space + 1)});
  }
  if (list.empty())
    return Status::damaged("'" + file.name() + "' is damaged: it has '" + count->second +
                           "' parts");
  return list;
}

Result<SafetensorsFile> openWithShards(const std::string &path) {
  auto file = SafetensorsFile::open(path);
  if (!file)
    return file.status();
  if (Status status = file->verifyChecksum(); !status.ok())
    return status;
  auto list = listOf(*file);
  if (!list)
    return list.status();
  std::vector<SafetensorsFile> parts;
  for (const auto &[name, checksum] : *list) {
    auto part = SafetensorsFile::open((fs::path(path).parent_path() / name).string());
    Status status = part ? part->verifyChecksum() : part.status();
    if (status.ok() && part->checksum() != checksum)
      status = Status::damaged("'" + name + "' belongs to another checkpoint");
    if (!status.ok())
      return Status::damaged("'" + path + "' lacks a part: " + status.message);
    parts.push_back(std::move(*part));
  }
  return list->empty() ? std::move(file)
                       : SafetensorsFile::joined(std::move(*file), std::move(parts));
}

void removeUnlistedShards(const std::string &folder) {
  std::set<std::string> listed;
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    size_t mark = name.find(".tmp-");
    if (isShardName(name.substr(0, mark)))
      found.push_back(it->path());
    else if (name.starts_with("step-") && name.ends_with(suffix))
      if (auto file = SafetensorsFile::open(it->path().string()))
        if (auto list = listOf(*file))
          for (const auto &[shard, checksum] : *list)
            listed.insert(shard);
  }
  for (const fs::path &path : found)
    if (!listed.contains(path.filename().string()))
      fs::remove(path, error);
}

} // namespace sluice
