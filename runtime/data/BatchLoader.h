#pragma once
// A ring of batch buffers, filled ahead by one thread.

#include "runtime/data/DataSource.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace sluice {

class BatchLoader {
public:
  BatchLoader(const DataSource &source, std::vector<DataSource::Slot> slots, bool ahead);
  ~BatchLoader();

  void seek(int64_t sample);
  /// The slot stays valid until the next call of `next` or `seek`.
  const DataSource::Slot &next();
  int64_t bytes() const;

private:
  void run();
  /// Position behind a batch; stays where a batch could not be read.
  static int64_t after(const DataSource::Slot &slot) {
    return slot.firstSample + slot.count;
  }

  const DataSource &source;
  std::vector<DataSource::Slot> slots;
  const bool ahead; // else filled in the caller's thread

  std::mutex mutex;
  std::condition_variable changed;
  size_t head = 0;      // slot to fill next
  size_t filled = 0;    // slots ready, ending before head
  bool lent = false;    // the slot before the ready ones is with the caller
  bool stalled = false; // a slot holds an error: nothing is read behind it
  bool stopping = false;
  int64_t position = 0;    // of the next batch to fill
  uint64_t generation = 0; // counts seeks: what was begun before one is dropped
  std::thread worker;      // last, as it uses all of the above
};

} // namespace sluice
