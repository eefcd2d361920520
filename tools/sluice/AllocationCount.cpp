#include "tools/sluice/AllocationCount.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<int> running{0}, programs{1};
std::atomic<uint64_t> allocations{0};

void note() {
  if (running.load(std::memory_order_relaxed) == programs.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
}
} // namespace

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  note();
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  note();
  return __libc_calloc(count, size);
}
void *realloc(void *block, size_t size) {
  note();
  return __libc_realloc(block, size);
}
void *memalign(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block ? 0 : ENOMEM;
}
}

namespace sluice::cli {

uint64_t allocationsInSteps() { return allocations.load(); }
void countAllocations(bool on) { running.fetch_add(on ? 1 : -1); }
void countAllocationsOf(int ranks) { programs.store(ranks); }

} // namespace sluice::cli
