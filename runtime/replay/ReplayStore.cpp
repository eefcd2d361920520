#include "runtime/replay/ReplayStore.h"

#include "runtime/Checksum.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t stateMagic = 0x31304c50'52434c53; // "SLCRPL01"
enum RecordKind : int64_t { samplesRecord = 1, forgettingRecord = 2 };

/// In front of every record of the log.
struct RecordHead {
  uint64_t bytes = 0, checksum = 0;
};

struct StateHead {
  uint64_t magic = stateMagic, generation = 0, bytes = 0, checksum = 0;
};

template <class T> void put(std::vector<uint8_t> &out, const T &value) {
  auto *bytes = reinterpret_cast<const uint8_t *>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

template <class T> bool take(std::span<const uint8_t> &in, T &value) {
  if (in.size() < sizeof(T))
    return false;
  std::memcpy(&value, in.data(), sizeof(T));
  in = in.subspan(sizeof(T));
  return true;
}

Result<std::vector<uint8_t>> readWhole(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  if (file.bad())
    return Status::refused("cannot read '" + path + "'");
  return bytes;
}

bool writeAll(int file, const std::vector<uint8_t> &bytes) {
  for (size_t done = 0; done < bytes.size();) {
    ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

} // namespace

Status saveReplay(const ReplayBuffer &buffer, const std::string &path,
                  uint64_t generation, const AtomicFile::Observer &observer) {
  std::vector<uint8_t> state = buffer.state();
  StateHead head{stateMagic, generation, state.size(), fnv1a(state.data(), state.size())};
  AtomicFile file(path, observer);
  Status status = file.open();
  if (status.ok())
    status = file.write(&head, sizeof head);
  if (status.ok())
    status = file.write(state.data(), state.size());
  return status.ok() ? file.commit() : status;
}

Result<uint64_t> loadReplay(ReplayBuffer &buffer, const std::string &path) {
  auto bytes = readWhole(path);
  if (!bytes)
    return bytes.status();
  std::span<const uint8_t> in(*bytes);
  StateHead head;
  if (!take(in, head) || head.magic != stateMagic || head.bytes != in.size() ||
      head.checksum != fnv1a(in.data(), in.size()))
    return Status::damaged("'" + path + "' is no whole state of a replay buffer");
  if (Status status = buffer.restore(in); !status.ok())
    return status;
  return head.generation;
}

Result<ReplayStore> ReplayStore::open(ReplayBuffer empty, std::string folder,
                                      AtomicFile::Observer observer) {
  ReplayStore store(std::move(empty), std::move(folder), std::move(observer));
  if (Status status = store.load(); !status.ok())
    return status;
  return store;
}

ReplayStore::ReplayStore(ReplayStore &&other) noexcept
    : kept(std::move(other.kept)), folder(std::move(other.folder)),
      observer(std::move(other.observer)), generation(other.generation),
      log(std::exchange(other.log, -1)), logBytes(other.logBytes) {}

ReplayStore::~ReplayStore() {
  if (log >= 0)
    ::close(log);
}

Status ReplayStore::problem(const char *what, const std::string &name) const {
  return Status::refused("cannot " + std::string(what) + " '" + pathOf(name) +
                         "': " + std::strerror(errno));
}

Status ReplayStore::load() {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status::refused("cannot create the folder '" + folder +
                           "': " + error.message());
  Status status = loadState();
  if (status.ok())
    status = readLog();
  if (status.ok())
    status = openLog();
  if (status.ok())
    removeOthers();
  return status;
}

Status ReplayStore::loadState() {
  std::error_code error;
  if (!fs::exists(pathOf("replay.state"), error))
    return saveReplay(kept, pathOf("replay.state"), 0, observer); // says its options
  auto found = loadReplay(kept, pathOf("replay.state"));
  if (found)
    generation = *found;
  return found ? Status::success() : found.status();
}

/// Up to the first record that is not whole, which was never acknowledged.
Status ReplayStore::readLog() {
  auto bytes = readWhole(pathOf(logName()));
  if (!bytes)
    return bytes.status();
  std::span<const uint8_t> in(*bytes);
  logBytes = 0;
  for (RecordHead head; take(in, head) && head.bytes <= in.size();) {
    auto record = in.first(head.bytes);
    if (fnv1a(record.data(), record.size()) != head.checksum || !apply(record))
      break;
    in = in.subspan(head.bytes);
    logBytes += sizeof head + head.bytes;
  }
  return Status::success();
}

Status ReplayStore::openLog() {
  observe("open");
  log = ::open(pathOf(logName()).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (log < 0)
    return problem("open", logName());
  observe("truncate");
  if (::ftruncate(log, static_cast<off_t>(logBytes)) != 0 ||
      ::lseek(log, 0, SEEK_END) < 0 || ::fsync(log) != 0)
    return problem("truncate", logName());
  int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    return problem("open", "");
  observe("fsync");
  bool synced = ::fsync(directory) == 0;
  ::close(directory);
  return synced ? Status::success() : problem("sync", "");
}

/// Logs of other generations: their records are in the state.
void ReplayStore::removeOthers() const {
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with("replay-") && name.ends_with(".log") && name != logName())
      others.push_back(it->path());
  }
  for (const fs::path &path : others)
    fs::remove(path, error);
}

/// False where it is no record of this buffer; nothing is offered then.
bool ReplayStore::apply(std::span<const uint8_t> record) {
  int64_t kind = 0;
  if (!take(record, kind))
    return false;
  if (kind == forgettingRecord) {
    int64_t task = 0;
    double best = 0, accuracy = 0, epochs = 0;
    if (!take(record, task) || !take(record, best) || !take(record, accuracy) ||
        !take(record, epochs) || !record.empty())
      return false;
    kept.setForgetting(task, best, accuracy, epochs);
    return true;
  }
  uint64_t sampleBytes = 2 * sizeof(int64_t);
  for (const ReplayField &field : kept.fields())
    sampleBytes += field.bytes;
  if (kind != samplesRecord || record.size() % sampleBytes != 0)
    return false;
  std::vector<const void *> sample(kept.fields().size());
  while (!record.empty()) {
    int64_t label = 0, task = 0;
    take(record, label), take(record, task);
    for (size_t f = 0; f < sample.size(); ++f) {
      sample[f] = record.data();
      record = record.subspan(kept.fields()[f].bytes);
    }
    kept.offer(sample, label, task);
  }
  return true;
}

/// Written and synced, or not there.
Status ReplayStore::append(const std::vector<uint8_t> &record) {
  std::vector<uint8_t> whole;
  whole.reserve(sizeof(RecordHead) + record.size());
  put(whole, RecordHead{record.size(), fnv1a(record.data(), record.size())});
  whole.insert(whole.end(), record.begin(), record.end());
  observe("write");
  bool written = writeAll(log, whole);
  observe("fdatasync");
  if (!written || ::fdatasync(log) != 0) {
    Status status = problem("write", logName());
    auto end = static_cast<off_t>(logBytes);
    if (::ftruncate(log, end) != 0 || ::lseek(log, end, SEEK_SET) < 0)
      status.message += "; its end is damaged, too";
    return status;
  }
  logBytes += whole.size();
  apply(record);
  uint64_t bound = std::max<uint64_t>(kept.bytes(), 1 << 20);
  if (logBytes <= bound)
    return Status::success();
  // What was added is safe whether or not there is room for this.
  static_cast<void>(compact());
  return Status::success();
}

Status ReplayStore::add(std::span<const ReplaySample> samples) {
  std::vector<uint8_t> record;
  put(record, int64_t{samplesRecord});
  for (const ReplaySample &sample : samples) {
    if (sample.fields.size() != kept.fields().size())
      return Status::usage("a sample has " + std::to_string(kept.fields().size()) +
                           " fields, " + std::to_string(sample.fields.size()) +
                           " are given");
    put(record, sample.label);
    put(record, sample.task);
    for (size_t f = 0; f < sample.fields.size(); ++f) {
      auto *bytes = static_cast<const uint8_t *>(sample.fields[f]);
      record.insert(record.end(), bytes, bytes + kept.fields()[f].bytes);
    }
  }
  return samples.empty() ? Status::success() : append(record);
}

Status ReplayStore::setForgetting(int64_t task, double bestAccuracy, double accuracy,
                                  double epochs) {
  std::vector<uint8_t> record;
  put(record, int64_t{forgettingRecord});
  put(record, task);
  put(record, bestAccuracy);
  put(record, accuracy);
  put(record, epochs);
  return append(record);
}

Status ReplayStore::compact() {
  Status status = saveReplay(kept, pathOf("replay.state"), generation + 1, observer);
  if (!status.ok())
    return status;
  // From here on the old log is no part of the state.
  int old = std::exchange(log, -1);
  ++generation;
  logBytes = 0;
  status = openLog();
  ::close(old);
  removeOthers();
  return status;
}

} // namespace sluice
