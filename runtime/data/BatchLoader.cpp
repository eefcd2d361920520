#include "runtime/data/BatchLoader.h"

namespace sluice {

BatchLoader::BatchLoader(const DataSource &source, std::vector<DataSource::Slot> buffers,
                         bool ahead)
    : source(source), slots(std::move(buffers)), ahead(ahead) {
  if (ahead)
    worker = std::thread([this] { run(); });
}

BatchLoader::~BatchLoader() {
  if (!ahead)
    return;
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  worker.join();
}

void BatchLoader::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] {
      return stopping || (!stalled && filled + (lent ? 1 : 0) < slots.size());
    });
    if (stopping)
      return;
    DataSource::Slot &slot = slots[head];
    int64_t begin = position;
    uint64_t begun = generation;
    lock.unlock();
    source.fill(slot, begin);
    lock.lock();
    if (begun != generation)
      continue;
    position = after(slot);
    stalled = !slot.status.ok();
    head = (head + 1) % slots.size();
    ++filled;
    changed.notify_all();
  }
}

void BatchLoader::seek(int64_t sample) {
  std::lock_guard lock(mutex);
  position = sample;
  filled = 0;
  lent = stalled = false;
  ++generation;
  changed.notify_all();
}

const DataSource::Slot &BatchLoader::next() {
  std::unique_lock lock(mutex);
  if (!ahead) {
    source.fill(slots[0], position);
    position = after(slots[0]);
    return slots[0];
  }
  lent = false;
  changed.notify_all();
  changed.wait(lock, [&] { return filled > 0; });
  size_t index = (head + slots.size() - filled) % slots.size();
  if (slots[index].status.ok()) {
    --filled;
    lent = true;
  } // else the slot stays, and each call gives the same error until a seek
  return slots[index];
}

int64_t BatchLoader::bytes() const {
  int64_t total = 0;
  for (const auto &slot : slots)
    for (const auto &input : slot.inputs)
      total += int64_t(input.size() * sizeof(uint64_t));
  return total;
}

} // namespace sluice
